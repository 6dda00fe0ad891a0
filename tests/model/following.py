"""A real run, followed by the model step by step: what the model does not allow, the code should not do."""

from collections.abc import Callable

from mingle_hooks.rendezvous import wire
from model import protocol
from model.protocol import Connection, RefusedError, State, Terms, begin, crash, is_running, require

# Frames as the model names them; of these, those that it leaves out where they free nobody, and those with an epoch.
KINDS = ("WELCOME", "PROGRESS", "ANSWER", "HOLD", "COMMIT", "FAILED", "MOVED", "READY", "GAVE_UP")
NAMES = {getattr(wire, name): name for name in KINDS}
SMALL_TALK, OF_AN_EPOCH = ("WELCOME", "PROGRESS"), ("ANSWER", "HOLD", "COMMIT", "READY")


class Following:
    """The model's state beside a real run, and the first event that the model does not allow."""

    def __init__(self, size: int, now: Callable[[], float], *, ranked: bool, calm: bool) -> None:
        self.state = State(Terms(size, ranked), (), (), protocol.UNLIMITED)
        self.refused = ""
        self.steps = 0
        self.now, self._calm = now, calm
        self._indices: dict[bytes, int] = {}
        self._names: dict[bytes, int] = {}  # connections, by their key
        self._leaders: dict[bytes, int] = {}  # and to whom they are
        self._leases: dict[int, Callable[[], bool]] = {}  # member -> whether its promise is over

    def step(self, event: str, act: Callable[[], State]) -> None:
        """Take a step, or note why the model does not."""
        if self.refused:
            return
        try:
            self._let_time_pass()
            self.state = act()
            self.steps += 1
        except RefusedError as error:
            self.refused = f"{self.now():.4f} {event}: {error}"

    def connection(self, key: bytes) -> Connection:
        """Return the model's connection of this session."""
        name = self._names.get(key)
        found = next((c for c in self.state.connections if c.name == name), None)
        if found is None:
            raise RefusedError("that connection is over, or was never there")
        return found

    def _is_ending(self, key: bytes) -> bool:
        """Tell whether this connection's leader has heard why there is no world, and ends with this turn of its loop.

        It may still hear what came in this turn, and answer.
        """
        return self.state.processes[self._leaders[key]].phase == protocol.LEFT

    def _let_time_pass(self) -> None:
        for member, is_over in list(self._leases.items()):
            bound = self.state.processes[member].bound
            if bound == protocol.NOBODY:
                del self._leases[member]
            elif is_over():
                leader = self.state.processes[bound]
                is_said = leader.leads == "formed" and leader.phase == protocol.IN and member in leader.members
                require(not (is_said and self._calm), f"COMMIT did not come to {member}, and nothing was wrong")
                self.state = (protocol.cut if is_said else protocol.lapse)(self.state, member)

    # What processes do.

    def began(self, member: bytes, rank: int | None, precedence: tuple[object, ...]) -> None:
        """Note that a process has begun, and whether it leads, or would."""
        self._indices[member] = len(self.state.processes)
        slot = rank if rank is not None else len(self.state.processes)
        self.step("begins", lambda: begin(self.state, slot, precedence, leads=bool(precedence)))

    def killed(self, member: bytes) -> None:
        """Note that a process was killed."""
        index = self._indices[member]

        def kill() -> State:  # one that has heard why there is no world may still be about to end
            return crash(self.state, index) if is_running(self.state.processes[index]) else self.state

        self.step(f"{index} is killed", kill)

    def ended(self, member: bytes, *, has_world: bool, nobody_waits: bool) -> None:
        """Note that a process has ended by itself, and whether its leases are over, where it led."""
        index = self._indices[member]

        def end() -> State:
            me = self.state.processes[index]
            require(has_world == bool(me.got), f"it ended with {'' if has_world else 'no '}world")
            if me.leads == "formed" and nobody_waits:  # it waits no longer than a member that COMMIT cannot reach
                for other in protocol.awaiting(self.state, index):
                    require(not self._calm, "a member has not got the word, and nothing was wrong")
                    self.state = protocol.cut(self.state, other)
            is_over = me.phase not in (protocol.ON, protocol.IN) or (me.phase == protocol.IN and me.leads != "formed")
            return self.state if is_over else protocol.leave(self.state, index)

        self.step(f"{index} ends", end)

    def found(self, member: bytes, leader: bytes, precedence: tuple[object, ...], key: bytes) -> None:
        """Note that a member joins a leader."""
        self._names[key] = len(self._names) + 1
        self._leaders[key] = self._indices[leader]
        self.step(
            f"{self._indices[member]} finds {self._leaders[key]}",
            lambda: protocol.find(self.state, self._indices[member], self._leaders[key], precedence, self._names[key]),
        )

    def promised(self, member: bytes, is_over: Callable[[], bool]) -> None:
        """Note how to tell that a promise is over."""
        self._leases[self._indices[member]] = is_over

    def gave_up(self, key: bytes) -> None:
        """Note that a member tells its leader that it will not wait."""
        self.step("a member gives up", lambda: protocol.give_up(self.state, self.connection(key).member))

    def told_failure(self, key: bytes) -> None:
        """Note that a member tells its leader why there can be no world."""
        name = self._names.get(key)
        if found := next((c for c in self.state.connections if c.name == name and c.m_open), None):  # else to nobody
            self.step("a member tells of a failure", lambda: protocol.tell_failure(self.state, found.member))

    # What leaders do.

    def led(self, member: bytes, what: str) -> None:
        """Record that a leader closes, commits, fails, or stands again."""
        does = {
            "closes": protocol.close,
            "commits": protocol.commit,
            "fails": protocol.fail,
            "resumes": protocol.resume,
        }
        index = self._indices[member]

        def act() -> State:
            if what == "fails" and self.state.processes[index].leads == "failed":
                return self.state  # by what it heard
            return does[what](self.state, index)

        self.step(f"{index} {what}", act)

    def told(self, key: bytes, kind: int) -> None:
        """Note that a leader asks for another promise, or tells who holds an answer that others are awaited."""

        def tell() -> State:
            connection = self.connection(key)
            if kind == wire.HOLD:
                return protocol.hold(self.state, connection)
            return protocol.progress(self.state, connection) if connection.promise != protocol.SILENT else self.state

        if kind in (wire.HOLD, wire.PROGRESS):
            self.step(f"a leader says {NAMES[kind]}", tell)

    # What is heard.

    def leader_hears(self, key: bytes, kind: int, body: wire.Body) -> None:
        """Note that a leader takes a frame: it has to be the next one that the model has for it."""
        frame = ("CHECKIN",) if kind == wire.CHECKIN else self._frame(kind, body)
        if frame:

            def hear() -> State:
                if self._is_ending(key):
                    return self.state
                connection = self.connection(key)
                require(connection.up[:1] and connection.up[0][:2] == frame, f"the model has {connection.up} there")
                return protocol.leader_hears(self.state, connection)

            self.step(f"a leader hears {frame}", hear)

    def member_hears(self, key: bytes, kind: int, body: wire.Body) -> None:
        """Note that a member takes a frame; what tells it only that others are awaited may be left out."""
        frame = self._frame(kind, body)
        if not frame:
            return

        def hear() -> State:
            connection = self.connection(key)
            is_last = frame[0] in ("MOVED", "FAILED") and connection.down == (protocol.END,)
            if connection.down[:1] == (frame,) or (is_last and self._is_ending(key)):
                return protocol.member_hears(self.state, connection)
            me = self.state.processes[connection.member]
            is_free = me.bound == protocol.NOBODY and not me.answer
            require(frame[0] in SMALL_TALK and is_free, f"the model has {connection.down} there")
            return self.state

        self.step(f"a member hears {frame}", hear)

    def _frame(self, kind: int, body: wire.Body) -> tuple[str | int, ...]:
        name = NAMES.get(kind, "")
        return (name, body["epoch"]) if name in OF_AN_EPOCH else (name,) if name else ()

    def lost(self, key: bytes, side: str) -> None:
        """Note that one end finds its connection broken; what was still under way to it is lost."""
        found = next((c for c in self.state.connections if c.name == self._names.get(key)), None)
        if found is None or not (found.l_open if side == "up" else found.m_open):
            return

        def hear() -> State:
            its = self.connection(key)  # as it is now: a promise may be over since
            broken = protocol.break_off(self.state, its, side) if getattr(its, side) != (protocol.END,) else self.state
            self.state = broken
            try:
                now = self.connection(key)
            except RefusedError:  # nobody minds
                return broken
            return protocol.leader_hears(broken, now) if side == "up" else protocol.member_hears(broken, now)

        self.step("a connection is lost", hear)
