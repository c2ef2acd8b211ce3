package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The example of docs/quorum-loss.md is right and has every key, and so has the table
// below it; it names no key that there is not.
func TestGuide(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", Guide))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```yaml\n")
	example, rest, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("no example in the page")
	}
	c, err := Parse([]byte(example), "/home/me/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(rest, "\nIt is strict")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z][a-z.\\[\\]-]*)`").FindAllStringSubmatch(firstColumn(table), -1) {
		named[m[1]] = true
	}
	eachKey("", reflect.ValueOf(*c), func(key string, v reflect.Value) {
		if v.IsZero() {
			t.Errorf("the example lacks %s", key)
		}
		if !named[key] {
			t.Errorf("the table lacks %s", key)
		}
		delete(named, key)
	})
	for key := range named {
		t.Errorf("the table has %s, and no cluster file does", key)
	}
}

// firstColumn is that of a table in Markdown.
func firstColumn(table string) string {
	var all []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			all = append(all, cells[1])
		}
	}
	return strings.Join(all, "\n")
}

// eachKey goes through the keys that have values of their own; of a list of sections
// the first one counts.
func eachKey(path string, v reflect.Value, do func(key string, v reflect.Value)) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("yaml")
		if tag == "" || tag == "-" {
			continue
		}
		field, key := v.Field(i), path+tag
		switch {
		case field.Kind() == reflect.Struct:
			eachKey(key+".", field, do)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			if field.Len() > 0 {
				eachKey(key+"[].", field.Index(0), do)
			}
		default:
			do(key, field)
		}
	}
}
