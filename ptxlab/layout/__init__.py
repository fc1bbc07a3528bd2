"""Where things lie: address expressions, swizzles, the bank model, the swizzle solver."""
