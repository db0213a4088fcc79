"""Where code runs: kernel processes, their outputs, their variables, their confinement."""
