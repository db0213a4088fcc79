"""What a model may ask for, and the gateway every wish goes through."""
