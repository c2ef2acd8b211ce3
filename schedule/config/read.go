package config

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// source is where a Config came from.
type source struct {
	name   string         // of the file
	data   []byte         // that stood in it
	lines  map[string]int // of each key that stands in it, by its path
	bad    map[string]bool
	getenv func(string) string
	zone   *time.Location
}

// Read reads the file of an agent, with the process's environment.
func Read(path string) (*Config, error) { return ReadWith(path, os.Getenv) }

// ReadWith is Read with another environment.
func ReadWith(path string, getenv func(string) string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the agent's configuration: %w", err)
	}
	return ParseWith(data, path, getenv)
}

// Parse reads a configuration. Its error holds all faults (errors.Join), each
// with name, line, key and what to write. It looks at no file and no network.
func Parse(data []byte, name string) (*Config, error) { return ParseWith(data, name, os.Getenv) }

// ParseWith is Parse with another environment.
func ParseWith(data []byte, name string, getenv func(string) string) (*Config, error) {
	c := Default()
	c.source = source{name: name, data: data, lines: map[string]int{}, bad: map[string]bool{}, getenv: getenv, zone: time.UTC}
	faults, readable := c.decode(data)
	if !readable {
		return nil, errors.Join(faults...)
	}
	c.derive()
	faults = append(faults, c.contradictions()...)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return c, nil
}

// File is the name of the file, Source what stood in it: for a process of the
// agent's own, which reads it again.
func (s *source) File() string { return s.name }

// Source is as File says. It holds secrets where the file does.
func (s *source) Source() []byte { return s.data }

// Given tells whether a key, such as "archive.enabled", stands in the file.
func (s *source) Given(key string) bool { return s.lines[key] > 0 }

// Place is the file and the line of a key, or of the next one above it that
// stands there.
func (s *source) Place(key string) string {
	for k := key; k != ""; k = parent(k) {
		if line := s.lines[k]; line > 0 {
			return fmt.Sprintf("%s, line %d", s.name, line)
		}
	}
	return s.name
}

// Fault is what is wrong with a key.
type Fault struct {
	Place string // file and line
	Key   string // such as "jobs.full.schedule"
	Err   error
}

func (f *Fault) Error() string {
	if f.Key == "" {
		return fmt.Sprintf("%s: %v", f.Place, f.Err)
	}
	return fmt.Sprintf("%s: %s: %v", f.Place, f.Key, f.Err)
}

func (f *Fault) Unwrap() error { return f.Err }

func (s *source) fault(key string, err error) error {
	return &Fault{Place: s.Place(key), Key: key, Err: err}
}
