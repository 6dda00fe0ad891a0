"""What a node says of itself: one function a source, each reads files that cannot block and runs nothing."""
