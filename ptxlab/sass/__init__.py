"""What the tools' output means: instructions, counts, loops, registers, advisories."""
