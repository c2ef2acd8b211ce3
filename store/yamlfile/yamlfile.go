// Package yamlfile reads the YAML files that an operator writes for us, strictly:
//
//  1. Nothing is accepted and then ignored: an unknown key, a key that stands there
//     twice, and one without a value are faults.
//  2. All faults are found at once, each with its file, line and key and with what to
//     write. None quotes a text that may be a secret.
package yamlfile

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Places knows the lines of a file.
type Places struct {
	name  string         // of the file
	lines map[string]int // of each key that stands in it, by its path
	bad   map[string]bool
}

// File is the name of the file.
func (p *Places) File() string { return p.name }

// Given reports whether a key, such as "archive.enabled", stands in the file.
func (p *Places) Given(key string) bool { return p.lines[key] > 0 }

// Bad reports whether the value of a key could not be read, and so is not judged.
func (p *Places) Bad(key string) bool { return p.bad[key] }

// Fault is what is wrong with a key, with its line, or that of the next one above it
// that stands there.
func (p *Places) Fault(key string, err error) error {
	for k := key; k != ""; k = parent(k) {
		if line := p.lines[k]; line > 0 {
			return &Fault{Place: fmt.Sprintf("%s, line %d", p.name, line), Key: key, Err: err}
		}
	}
	return &Fault{Place: p.name, Key: key, Err: err}
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

// Checker collects what is wrong with keys, beside what Read finds.
type Checker struct {
	*Places
	Faults []error
}

// Refuse adds a fault where wrong. What could not be read is not judged.
func (k *Checker) Refuse(wrong bool, key, format string, args ...any) {
	if wrong && !k.Bad(key) {
		k.Faults = append(k.Faults, k.Fault(key, fmt.Errorf(format, args...)))
	}
}

// decoder fills structs from YAML and keeps all faults. The library's own strict
// mode names no keys, and stops at the first fault of some kinds.
type decoder struct {
	*Places
	guide      string            // the page that has all keys
	removed    map[string]string // keys that no longer exist, each with its replacement
	mayBeEmpty []string          // keys whose value may be ""
	faults     []error
}

// Read fills to, a pointer to a struct with yaml tags that holds the defaults, from
// the bytes of a file. guide is the page that has all its keys; removed holds the keys
// that no longer exist, by their path without places in lists (hosts.store), each with
// its replacement. What it returns says where each key stands; it is nil where nothing
// could be read.
func Read(data []byte, name, guide string, to any, removed map[string]string, mayBeEmpty ...string) (*Places, []error) {
	d := &decoder{Places: &Places{name: name, lines: map[string]int{}, bad: map[string]bool{}}, guide: guide, removed: removed, mayBeEmpty: mayBeEmpty}
	var doc, more yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return d.Places, nil // an empty file: what it lacks is found later
	case err != nil && tabbed(data) > 0:
		return nil, []error{fmt.Errorf("%s, line %d: no YAML: a tab indents it: write spaces", name, tabbed(data))}
	case err != nil:
		return nil, []error{fmt.Errorf("%s: no YAML: %w", name, withoutText(err))}
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, []error{fmt.Errorf("%s, line %d: more than one document: remove the line of dashes and what follows", name, max(more.Line, 1))}
	}
	d.mapping(doc.Content[0], reflect.ValueOf(to).Elem(), "")
	return d.Places, d.faults
}

// tabbed is the first line that a tab indents; 0 where none does. The library's own
// error names none, or the line before it.
func tabbed(data []byte) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		text := bytes.TrimLeft(line, " \t")
		if len(text) > 0 && text[0] != '#' && bytes.IndexByte(line[:len(line)-len(text)], '\t') >= 0 {
			return i + 1
		}
	}
	return 0
}

// index is the place in a list, as paths of keys have it.
var index = regexp.MustCompile(`\[[0-9]+\]`)

var quoted = regexp.MustCompile("`[^`]*`|'[^']*'")

// withoutText keeps what the YAML library quotes of the file out of an error: it
// may be a secret.
func withoutText(err error) error {
	return errors.New(quoted.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "…"))
}

func (d *decoder) failed(n *yaml.Node, key, format string, args ...any) {
	d.bad[key] = true
	d.faults = append(d.faults, &Fault{Place: fmt.Sprintf("%s, line %d", d.name, n.Line), Key: key, Err: fmt.Errorf(format, args...)})
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func parent(path string) string {
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}

// resolved follows aliases. The types have no cycles, so a file's cycles end.
func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (d *decoder) mapping(n *yaml.Node, to reflect.Value, path string) {
	n = resolved(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		if path != "" {
			d.failed(n, path, "%w", errEmpty)
		}
		return
	}
	if n.Kind != yaml.MappingNode {
		d.failed(n, path, "want keys and values, one a line, as \"key: value\"")
		return
	}
	fields := fieldsOf(to)
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		full := join(path, key.Value)
		field, known := fields[key.Value]
		switch {
		case seen[key.Value]:
			d.failed(key, full, "stands there twice: remove one")
			continue
		case !known && d.refuseRemoved(key, full):
			continue
		case !known:
			d.failed(key, full, "unknown key%s", d.suggestion(key.Value, fields))
			continue
		}
		seen[key.Value] = true
		d.lines[full] = key.Line
		d.value(value, field, full)
	}
}

// fieldsOf are a struct's fields by their keys, with those of inlined structs.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("yaml")
		switch {
		case tag == "" || tag == "-":
		case strings.HasSuffix(tag, ",inline"):
			for key, f := range fieldsOf(v.Field(i)) {
				fields[key] = f
			}
		default:
			fields[tag] = v.Field(i)
		}
	}
	return fields
}

// value reads one value. A section whose type reads text may also be one word.
func (d *decoder) value(n *yaml.Node, to reflect.Value, key string) {
	n = resolved(n)
	_, short := to.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case to.Kind() == reflect.Struct && (!short || n.Kind != yaml.ScalarNode):
		d.mapping(n, to, key)
	case to.Kind() == reflect.Slice:
		d.list(n, to, key)
	default:
		d.scalar(n, to, key)
	}
}

// refuseRemoved reports whether a key no longer exists, and files that with its replacement.
func (d *decoder) refuseRemoved(n *yaml.Node, key string) bool {
	instead, removed := d.removed[index.ReplaceAllString(key, "")]
	if removed {
		d.failed(n, key, "requorum no longer has this key: %s", instead)
	}
	return removed
}

// hasRemoved refuses keys that were once allowed at a place that now takes a text.
func (d *decoder) hasRemoved(n *yaml.Node, key string) (found bool) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		found = d.refuseRemoved(n.Content[i], join(key, n.Content[i].Value)) || found
	}
	return found
}

func (d *decoder) list(n *yaml.Node, to reflect.Value, key string) {
	if d.hasRemoved(n, key) {
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" && to.Type().Elem().Kind() == reflect.String {
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Content: []*yaml.Node{n}} // a list of one
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		d.failed(n, key, "%w", errEmpty)
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.failed(n, key, "want a list, such as [a, b]")
		return
	}
	all := reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, all.Index(i), fmt.Sprintf("%s[%d]", key, i))
	}
	to.Set(all)
}

func (d *decoder) scalar(n *yaml.Node, to reflect.Value, key string) {
	switch {
	case d.hasRemoved(n, key):
		return
	case n.Kind != yaml.ScalarNode:
		d.failed(n, key, "want one value, not a list or further keys")
		return
	case n.Tag == "!!null" || strings.TrimSpace(n.Value) == "":
		if !slices.Contains(d.mayBeEmpty, key) || n.Tag == "!!null" {
			d.failed(n, key, "%w", errEmpty)
		}
		return
	}
	if err := setScalar(to, n.Value); err != nil {
		d.failed(n, key, "%w", err)
	}
}

// setScalar never quotes a text that may be a secret.
func setScalar(to reflect.Value, text string) error {
	switch v := to.Addr().Interface().(type) {
	case *Duration:
		d, err := ParseDuration(text)
		*v = d
		return err
	case *Bytes:
		b, err := ParseBytes(text)
		*v = b
		return err
	case *bool:
		switch text {
		case "true", "false":
			*v = text == "true"
			return nil
		}
		return fmt.Errorf("%q is neither true nor false", text)
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(text))
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		*v = n
	case *uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		*v = n
	default:
		to.SetString(text)
	}
	return nil
}

// suggestion is the known key that a misspelt one is nearest to.
func (d *decoder) suggestion(key string, fields map[string]reflect.Value) string {
	best := Nearest(key, maps.Keys(fields))
	if best == "" {
		return fmt.Sprintf(": %s has them all", d.guide)
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

// Nearest is the name that a misspelt one was meant to be; empty where none is near.
func Nearest(misspelt string, names iter.Seq[string]) string {
	best, least := "", 3 // two letters are a slip; more are another word
	for name := range names {
		if n := distance(strings.ReplaceAll(misspelt, "_", "-"), name); n < least || n == least && name < best {
			best, least = name, n
		}
	}
	if least >= len(best) {
		return ""
	}
	return best
}

// distance is how many letters have to be changed, put in or taken out.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// errEmpty is of a key that stands there without a value.
var errEmpty = errors.New("there is no value: give one, or remove the line to have the default")
