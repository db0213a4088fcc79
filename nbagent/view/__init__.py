"""People watching: the widget, the static trace, the terminal."""
