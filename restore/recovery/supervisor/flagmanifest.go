package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// flagManifest is the text of a pod's manifest, with what is of interest in it.
type flagManifest struct {
	text []byte
	doc  *yaml.Node
	// args are the items of the container's command and args, one list after the
	// other, as the program gets them.
	args  []*yaml.Node
	given map[string]argument   // flags among args
	env   map[string]*yaml.Node // values of variables, by flag
	// brackets are those of args in a list in brackets.
	brackets map[*yaml.Node]bool
}

func readFlagManifest(text []byte, container string) (*flagManifest, error) {
	m := &flagManifest{text: text, doc: &yaml.Node{}, env: map[string]*yaml.Node{}, brackets: map[*yaml.Node]bool{}}
	in := yaml.NewDecoder(bytes.NewReader(text))
	if err := in.Decode(m.doc); err != nil {
		return nil, errors.New("it is no YAML")
	}
	if err := in.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one document")
	}
	c, err := containerIn(m.doc, container)
	if err != nil {
		return nil, err
	}
	for _, list := range []string{"command", "args"} {
		n := field(c, list)
		if n == nil {
			continue
		}
		if n.Kind != yaml.SequenceNode || slices.ContainsFunc(n.Content, func(i *yaml.Node) bool { return i.Kind != yaml.ScalarNode }) {
			return nil, fmt.Errorf("%s is no plain list", list)
		}
		for _, item := range n.Content {
			m.brackets[item] = n.Style&yaml.FlowStyle != 0
		}
		m.args = append(m.args, n.Content...)
	}
	if err := m.readArgs(c); err != nil {
		return nil, err
	}
	return m, m.readEnv(c)
}

func (m *flagManifest) readArgs(container *yaml.Node) (err error) {
	var args []string
	for _, n := range m.args {
		args = append(args, n.Value)
	}
	if command := field(container, "command"); command != nil && len(command.Content) > 0 && strings.HasSuffix(path.Base(command.Content[0].Value), "sh") {
		return errors.New("a shell reads them")
	}
	m.given, err = arguments(args)
	return err
}

func (m *flagManifest) readEnv(container *yaml.Node) error {
	list := field(container, "env")
	if list == nil {
		return nil
	}
	for _, v := range list.Content {
		name := field(v, "name")
		i := -1
		if name != nil {
			i = slices.IndexFunc(flagNames(), func(flag string) bool { return variable(flag) == name.Value })
		}
		switch {
		case name != nil && name.Value == "ETCD_CONFIG_FILE":
			return errors.New("ETCD_CONFIG_FILE is given, and etcd reads nothing else then")
		case i < 0:
			continue
		}
		value := field(v, "value")
		if value == nil || value.Kind != yaml.ScalarNode || m.env[flagNames()[i]] != nil {
			return fmt.Errorf("variable %s has no plain value, or two", name.Value)
		}
		m.env[flagNames()[i]], m.brackets[value] = value, v.Style&yaml.FlowStyle != 0
	}
	return nil
}

// containerIn finds the container of a name.
func containerIn(doc *yaml.Node, name string) (*yaml.Node, error) {
	if len(doc.Content) != 1 {
		return nil, errors.New("it is empty")
	}
	list := field(field(doc.Content[0], "spec"), "containers")
	if list == nil {
		return nil, errors.New("it has no containers")
	}
	for _, c := range list.Content {
		if n := field(c, "name"); n != nil && n.Value == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("it has no container %s", name)
}

// field is the value of a key; nil where there is none.
func field(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// flags are what etcd would make of it: an argument wins over a variable.
func (m *flagManifest) flags() (Flags, error) {
	var f Flags
	for flag, n := range m.env {
		*f.at(flag) = n.Value
	}
	for flag, a := range m.given {
		*f.at(flag) = a.value
	}
	for _, flag := range flagNames() {
		if strings.Contains(*f.at(flag), "$(") {
			return Flags{}, fmt.Errorf("--%s has the value of a variable in it", flag)
		}
	}
	return f, nil
}

// changed is the text after changes.
func (m *flagManifest) changed(changes []FlagChange) ([]byte, error) {
	var edits []edit
	replaced, added := map[*yaml.Node]string{}, map[*yaml.Node][]string{}
	for _, c := range changes {
		node, value := m.env[c.Flag], c.New
		if a, there := m.given[c.Flag]; there {
			node, value = m.args[a.item], a.prefix+c.New
		}
		if node == nil {
			anchor, err := m.anchor()
			if err != nil {
				return nil, err
			}
			text := "--" + c.Flag + "=" + c.New
			e, err := m.add(anchor, text)
			if err != nil {
				return nil, err
			}
			edits, added[anchor] = append(edits, e), append(added[anchor], text)
			continue
		}
		t, err := m.token(node)
		if err != nil {
			return nil, err
		}
		edits, replaced[node] = append(edits, edit{t.start, t.end, t.render(value)}), value
	}
	after := applyEdits(m.text, edits)
	return after, m.compare(after, replaced, added)
}

// anchor is the argument behind which another one is added.
func (m *flagManifest) anchor() (*yaml.Node, error) {
	if a, there := m.given[clusterFlag]; there {
		return m.args[a.item], nil
	}
	if len(m.args) == 0 {
		return nil, errors.New("the container has no list of arguments")
	}
	return m.args[len(m.args)-1], nil
}

// compare makes sure that nothing else has changed: all that is written down in the
// new text is what stood in the old one, but for what was meant to be another.
func (m *flagManifest) compare(after []byte, replaced map[*yaml.Node]string, added map[*yaml.Node][]string) error {
	var want, got []string
	walk(m.doc, func(n *yaml.Node) {
		value, other := replaced[n]
		if !other {
			value = n.Value
		}
		want = append(want, value)
		want = append(want, added[n]...)
	})
	var doc yaml.Node
	if err := yaml.Unmarshal(after, &doc); err != nil {
		return errors.New("what came out of the edit is no YAML")
	}
	walk(&doc, func(n *yaml.Node) { got = append(got, n.Value) })
	if !slices.Equal(got, want) {
		return errors.New("what came out of the edit is not what was meant")
	}
	return nil
}

// walk visits all that is no list and no mapping, in the order of the text.
func walk(n *yaml.Node, visit func(*yaml.Node)) {
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
		visit(n)
		return
	}
	for _, c := range n.Content {
		walk(c, visit)
	}
}
