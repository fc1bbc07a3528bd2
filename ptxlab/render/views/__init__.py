"""One file a command: ``view(document)`` returns the blocks that a person sees."""
