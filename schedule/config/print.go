package config

import (
	"encoding/json"
	"log/slog"

	"go.yaml.in/yaml/v3"
)

// String is the configuration as YAML, with its defaults and without secrets.
func (c *Config) String() string {
	data, err := yaml.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// MarshalJSON is String as JSON, with the same keys.
func (c *Config) MarshalJSON() ([]byte, error) {
	var all map[string]any
	if err := yaml.Unmarshal([]byte(c.String()), &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// LogValue is where the configuration came from.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.name) }
