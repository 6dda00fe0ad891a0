"""What must hold in every state of the model."""

from model.protocol import CRASHED, LEFT, State


def broken(state: State) -> str:
    """Return the rule that a state breaks, in words; nothing where all hold."""
    got = [(index, p.got) for index, p in enumerate(state.processes) if p.got]
    if not got:
        return ""
    if len({world for _, world in got}) > 1:
        return f"two worlds: {', '.join(f'{index} has that of {world}' for index, world in got)}"
    leader, epoch = world = got[0][1]
    formed = state.processes[leader]
    if formed.got != world or formed.epoch != epoch:
        return "a world that its leader has not formed"
    if outside := [index for index, _ in got if index not in formed.members]:
        return f"{outside} has a world that it is not in"
    slots = [state.processes[index].slot for index in formed.members]
    if len(slots) != state.terms.size or (state.terms.ranked and len(set(slots)) != len(slots)):
        return f"ranks {slots} in a world of {state.terms.size}"
    return next((why for index in formed.members if (why := _split(state, leader, index))), "")


def _split(state: State, leader: int, member: int) -> str:
    """Return the fault of a member of a formed world, unless it has the world, waits for COMMIT, or was killed."""
    formed, me = state.processes[leader], state.processes[member]
    if me.got or me.phase == CRASHED or me.excused:
        return ""
    if me.phase == LEFT or me.bound != leader:
        return f"a split: {member} is in the world of {leader}, and does not wait for its word"
    if formed.leads == "left":
        return f"a split: {leader} has left, and {member} waits for its word"
    return ""


def is_documented_split(state: State) -> bool:
    """Return whether a member has missed COMMIT: it was cut off from it, or its leader killed, for the whole lease."""
    return any(process.excused for process in state.processes)
