package flagfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// token is where a value stands in YAML, with its quotes.
type token struct {
	start, end int
	quote      string // empty where there is none
	brackets   bool   // it is in a list in brackets, as JSON has them
}

// token finds a value in the text. It fails where what stands there is not, byte for
// byte, a value of one line.
func (m *manifest) token(n *yaml.Node) (token, error) {
	start, found := offset(m.text, n.Line, n.Column)
	none := fmt.Errorf("line %d is written in a way that cannot be edited for sure", n.Line)
	if !found || n.Anchor != "" || n.Kind != yaml.ScalarNode {
		return token{}, none
	}
	_, lineEnd, _ := lineAt(m.text, start)
	rest := string(m.text[start:lineEnd])
	for _, quote := range []string{`"`, "'"} {
		if !strings.HasPrefix(rest, quote) {
			continue
		}
		whole := quote + n.Value + quote
		// Without escapes: names and URLs need none.
		if !strings.HasPrefix(rest, whole) || strings.ContainsAny(n.Value, `"'\`) {
			return token{}, none
		}
		return token{start, start + len(whole), quote, m.brackets[n]}, nil
	}
	if n.Style != 0 || n.Value == "" || !strings.HasPrefix(rest, n.Value) {
		return token{}, none
	}
	return token{start, start + len(n.Value), "", m.brackets[n]}, nil
}

// render writes a value in the token's place. What stood plain is quoted in a list in
// brackets, where it would end at its first comma, and where it would be no text.
func (t token) render(value string) string {
	quote := t.quote
	var n yaml.Node
	if quote == "" && (t.brackets || yaml.Unmarshal([]byte(value), &n) != nil || n.Content[0].ShortTag() != "!!str") {
		quote = `"`
	}
	return quote + value + quote
}

// add is an edit that adds an item behind another one of a list.
func (m *manifest) add(behind *yaml.Node, value string) (edit, error) {
	t, err := m.token(behind)
	if err != nil {
		return edit{}, err
	}
	lineStart, lineEnd, _ := lineAt(m.text, t.start)
	before := string(m.text[lineStart:t.start])
	tail := strings.TrimSpace(string(m.text[t.end:lineEnd]))
	switch {
	case t.brackets:
		return edit{t.end, t.end, `, "` + value + `"`}, nil
	case strings.TrimLeft(before, " ") == "- " && (tail == "" || tail[0] == '#'):
		return below(m.text, t.start, before+t.render(value)), nil
	}
	return edit{}, fmt.Errorf("line %d is written in a way that cannot be edited for sure", behind.Line)
}

// offset is where a line and a column of YAML lie in the text.
func offset(text []byte, line, column int) (int, bool) {
	at := 0
	for ; line > 1; line-- {
		i := bytes.IndexByte(text[at:], '\n')
		if i < 0 {
			return 0, false
		}
		at += i + 1
	}
	for ; column > 1; column-- {
		if at >= len(text) || text[at] == '\n' {
			return 0, false
		}
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return at, true
}
