package config

import (
	"errors"
	"reflect"
)

// Strict fills to, a pointer to a struct with yaml tags that holds the defaults,
// from the YAML file of another process of ours, as strictly as an agent's own
// file is read: promises 1 and 2. name is the file's, guide the page that has all
// its keys. What it returns tells where each key stands; it is nil where nothing
// could be read.
func Strict(data []byte, name, guide string, to any) (*Places, error) {
	d := &decoder{source: &source{name: name, lines: map[string]int{}, bad: map[string]bool{}}, guide: guide}
	faults, readable := d.decode(data, reflect.ValueOf(to).Elem())
	if !readable {
		return nil, errors.Join(faults...)
	}
	return &Places{d.source}, errors.Join(faults...)
}

// Places knows the lines of a file.
type Places struct{ source *source }

// Fault is what is wrong with a key, with its place.
func (p *Places) Fault(key string, err error) error { return p.source.fault(key, err) }

// Given tells whether a key stands in the file.
func (p *Places) Given(key string) bool { return p.source.Given(key) }
