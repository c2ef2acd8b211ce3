package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder fills structs from YAML and keeps all faults. The library's own strict
// mode names no keys, and stops at the first fault of some kinds.
type decoder struct {
	*source
	guide  string // the page that has all keys
	faults []error
}

// decode fills c from data; readable is false where nothing could be told.
func (c *Config) decode(data []byte) (faults []error, readable bool) {
	return (&decoder{source: &c.source, guide: "docs/agent-configuration.md"}).decode(data, reflect.ValueOf(c).Elem())
}

func (d *decoder) decode(data []byte, to reflect.Value) (faults []error, readable bool) {
	var doc, more yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, true // an empty file: what it lacks is found later
	case err != nil && tabbed(data) > 0:
		return []error{fmt.Errorf("%s, line %d: no YAML: a tab indents it: write spaces", d.name, tabbed(data))}, false
	case err != nil:
		return []error{fmt.Errorf("%s: no YAML: %w", d.name, withoutText(err))}, false
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return []error{fmt.Errorf("%s, line %d: more than one document: remove the line of dashes and what follows", d.name, max(more.Line, 1))}, false
	}
	d.mapping(doc.Content[0], to, "")
	return d.faults, true
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

func (d *decoder) value(n *yaml.Node, to reflect.Value, key string) {
	n = resolved(n)
	switch to.Kind() {
	case reflect.Struct:
		d.mapping(n, to, key)
	case reflect.Slice:
		d.list(n, to, key)
	default:
		d.scalar(n, to, key)
	}
}

func (d *decoder) list(n *yaml.Node, to reflect.Value, key string) {
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
	case n.Kind != yaml.ScalarNode:
		d.failed(n, key, "want one value, not a list or further keys")
		return
	case n.Tag == "!!null" || strings.TrimSpace(n.Value) == "":
		if key != "jobs.structure.schedule" || n.Tag == "!!null" { // "": after full snapshots only
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
	best, least := "", 3 // two letters are a slip; more are another word
	for f := range fields {
		if n := distance(strings.ReplaceAll(key, "_", "-"), f); n < least || n == least && f < best {
			best, least = f, n
		}
	}
	if best == "" || least >= len(best) {
		return fmt.Sprintf(": %s has them all", d.guide)
	}
	return fmt.Sprintf(": did you mean %q?", best)
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
