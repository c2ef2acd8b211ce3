package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// flagEnvironment is the text of a unit's environment file, as systemd reads it: one
// NAME=VALUE a line, of which the last one of a name counts.
type flagEnvironment struct {
	text  []byte
	lines map[string]assignment // by flag
}

type assignment struct {
	value      string
	start, end int // of the value, without quotes
}

func readFlagEnvironment(text []byte) (*flagEnvironment, error) {
	e := &flagEnvironment{text: text, lines: map[string]assignment{}}
	for at := 0; at < len(text); {
		start, end, next := lineAt(text, at)
		at = next
		line := string(text[start:end])
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';' {
			if strings.HasSuffix(trimmed, `\`) {
				return nil, errors.New("a comment goes on in the next line")
			}
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("a line is no assignment: %q", short(trimmed))
		}
		raw := strings.TrimSpace(value)
		name = strings.TrimSpace(name)
		// What goes on in the next line could hold anything.
		if strings.HasSuffix(raw, `\`) || strings.Count(raw, `"`)%2 != 0 || strings.Count(raw, "'")%2 != 0 && !strings.Contains(raw, `"`) {
			return nil, fmt.Errorf("the value of %s goes on in the next line", short(name))
		}
		i := slices.IndexFunc(flagNames(), func(flag string) bool { return variable(flag) == name })
		switch {
		case name == "ETCD_CONFIG_FILE":
			return nil, errors.New("ETCD_CONFIG_FILE is given, and etcd reads nothing else then")
		case i < 0 && strings.Contains(raw, "-initial-"):
			return nil, fmt.Errorf("%s has flags in it, which may win over variables", short(name))
		case i < 0:
			continue
		}
		from := start + len(line) - len(value) + strings.Index(value, raw)
		if n := len(raw); n >= 2 && (raw[0] == '"' || raw[0] == '\'') && raw[n-1] == raw[0] {
			raw, from = raw[1:n-1], from+1
		}
		if strings.ContainsAny(raw, `"'\`) {
			return nil, fmt.Errorf("the value of %s is quoted in the middle", name)
		}
		e.lines[flagNames()[i]] = assignment{raw, from, from + len(raw)}
	}
	return e, nil
}

func short(s string) string { return s[:min(len(s), 60)] }

func (e *flagEnvironment) flags() (f Flags) {
	for flag, a := range e.lines {
		*f.at(flag) = a.value
	}
	return f
}

// changed is the text after changes.
func (e *flagEnvironment) changed(changes []FlagChange) ([]byte, error) {
	var edits []edit
	for _, c := range changes {
		if a, there := e.lines[c.Flag]; there {
			edits = append(edits, edit{a.start, a.end, c.New})
			continue
		}
		line := variable(c.Flag) + "=" + c.New
		switch a, there := e.lines[clusterFlag]; {
		case there:
			edits = append(edits, below(e.text, a.end, line))
		case len(e.text) == 0 || bytes.HasSuffix(e.text, []byte("\n")):
			edits = append(edits, edit{len(e.text), len(e.text), line + "\n"})
		default:
			edits = append(edits, edit{len(e.text), len(e.text), "\n" + line})
		}
	}
	after := applyEdits(e.text, edits)
	again, err := readFlagEnvironment(after)
	if err != nil {
		return nil, err
	}
	if again.flags() != e.flags().with(changes) {
		return nil, errors.New("what came out of the edit is not what was meant")
	}
	return after, nil
}
