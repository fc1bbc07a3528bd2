"""One small file a command: parse, one call, render."""
