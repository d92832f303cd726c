"""A model as a service: readings come in by HTTP or MQTT, predictions go out, and nothing is lost."""
