package config

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Given makes a Config of what was given otherwise than in a file, StateDir with it.
// Relative paths are those of the folder that the process works in. It is held to
// the same as a file: the error has all faults, each with what name calls the key
// that it is about, such as control.ca or hosts[0].control.
func Given(c Config, name func(key string) string) (*Config, error) {
	c.file = "what was given (there is no cluster file)"
	var faults []error
	for _, f := range c.faults() {
		faults = append(faults, fmt.Errorf("%s: %w", name(f.key), f.err))
	}
	if c.StateDir == "" {
		faults = append(faults, fmt.Errorf("%s: %w", name("state-dir"), errMissing))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	c.derive(dir)
	return &c, nil
}
