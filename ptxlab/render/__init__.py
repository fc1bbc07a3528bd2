"""Records become terminal text, JSON, CSV, Markdown, SVG and HTML here. Nothing is computed."""
