// FlagFile reads those of etcd's flags that say who the members are where a
// host keeps them, and brings them in line after a recovery: in the manifest of a
// static pod, or in the environment file of a unit. It promises:
//
//  1. Only the values of the flags in Flags are changed, or a flag of them is added;
//     every other byte stays, and what comes out is read again and compared before it
//     is written. What cannot be read for sure is refused with a *ByHandError.
//  2. The file is replaced in one step, with owner, mode and label, and the old one is
//     kept beside it where no kubelet looks.
//  3. Values are taken from nobody that could be more than names and URLs: see Check.
//
// The caller makes sure that the member is stopped: an edit while it runs would
// restart it.

package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Flags are those of etcd's flags that say who the members are. An empty one is not
// given.
type Flags struct {
	Name                     string `json:"name,omitempty"`
	InitialAdvertisePeerURLs string `json:"initial_advertise_peer_urls,omitempty"`
	InitialCluster           string `json:"initial_cluster,omitempty"`
	InitialClusterState      string `json:"initial_cluster_state,omitempty"`
	InitialClusterToken      string `json:"initial_cluster_token,omitempty"`
}

// FlagChange is a flag with its old value and the one that it should have.
type FlagChange struct {
	Flag string `json:"flag"` // without dashes, such as initial-cluster
	// Old is empty where the flag is not given.
	Old string `json:"old,omitempty"`
	New string `json:"new"`
}

func (c FlagChange) String() string {
	switch c.Old {
	case c.New: // what it is now is not known
		return fmt.Sprintf("--%s=%s", c.Flag, c.New)
	case "":
		return fmt.Sprintf("--%s (not given) → %s", c.Flag, c.New)
	}
	return fmt.Sprintf("--%s %s → %s", c.Flag, c.Old, c.New)
}

const (
	nameFlag    = "name"
	peersFlag   = "initial-advertise-peer-urls"
	clusterFlag = "initial-cluster"
	stateFlag   = "initial-cluster-state"
	tokenFlag   = "initial-cluster-token"
)

// all are the flags in the order in which they are told.
func flagNames() []string { return []string{nameFlag, peersFlag, clusterFlag, stateFlag, tokenFlag} }

// at is where the value of a flag is kept; nil where it is none of ours.
func (f *Flags) at(flag string) *string {
	switch flag {
	case nameFlag:
		return &f.Name
	case peersFlag:
		return &f.InitialAdvertisePeerURLs
	case clusterFlag:
		return &f.InitialCluster
	case stateFlag:
		return &f.InitialClusterState
	case tokenFlag:
		return &f.InitialClusterToken
	}
	return nil
}

// variable is the flag's name in etcd's environment.
func variable(flag string) string {
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Changes are what is stale in f, held against wanted. What wanted leaves empty is
// not looked at. A token counts only where one is given: no member reads it once
// there is a cluster.
func (f Flags) Changes(wanted Flags) (changes []FlagChange) {
	for _, flag := range flagNames() {
		has, want := *f.at(flag), *wanted.at(flag)
		if want == "" || flag == tokenFlag && has == "" || sameFlag(flag, has, want) {
			continue
		}
		changes = append(changes, FlagChange{Flag: flag, Old: has, New: want})
	}
	return changes
}

// sameFlag compares values as etcd would.
func sameFlag(flag, a, b string) bool {
	if a == "" {
		switch flag {
		case nameFlag:
			a = "default"
		case stateFlag:
			a = "new"
		}
	}
	if flag == clusterFlag || flag == peersFlag {
		return slices.Equal(parts(a), parts(b))
	}
	return a == b
}

func parts(list string) []string {
	var some []string
	for p := range strings.SplitSeq(list, ",") {
		some = append(some, strings.TrimSpace(p))
	}
	slices.Sort(some)
	return slices.Compact(some)
}

// MergeFlags adds later changes to earlier ones: what was first is the old value.
func MergeFlags(earlier, later []FlagChange) []FlagChange {
	all := slices.Clone(earlier)
	for _, c := range later {
		if i := slices.IndexFunc(all, func(a FlagChange) bool { return a.Flag == c.Flag }); i >= 0 {
			all[i].New = c.New
			continue
		}
		all = append(all, c)
	}
	return all
}

// with is f after changes.
func (f Flags) with(changes []FlagChange) Flags {
	for _, c := range changes {
		*f.at(c.Flag) = c.New
	}
	return f
}

// harmless has nothing that YAML, a shell, systemd or the kubelet would read as more
// than a name or a URL.
var harmless = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/,=\[\]@+-]*$`)

// Check fails where flags that are asked for are not those of one member of a
// cluster.
func (f Flags) Check() error {
	for _, flag := range flagNames() {
		v := *f.at(flag)
		switch {
		case v == "":
			return fmt.Errorf("the flags: %s is missing", flag)
		case !harmless.MatchString(v):
			return fmt.Errorf("the flags: %s %q: want names and URLs only", flag, v)
		}
	}
	if f.InitialClusterState != "existing" {
		return fmt.Errorf("the flags: initial-cluster-state %q: want existing", f.InitialClusterState)
	}
	for u := range strings.SplitSeq(f.InitialAdvertisePeerURLs, ",") {
		if !slices.Contains(parts(f.InitialCluster), f.Name+"="+u) {
			return errors.New("the flags: initial-cluster does not have the member's own name with its peer URLs")
		}
	}
	return nil
}

// ByHandError says why flags have to be changed by hand.
type ByHandError struct {
	In  string // where they stand
	Why string
}

func (e *ByHandError) Error() string {
	return fmt.Sprintf("etcd's flags in %s have to be changed by hand: %s", e.In, e.Why)
}

func byHand(in, format string, args ...any) error {
	return &ByHandError{In: in, Why: fmt.Sprintf(format, args...)}
}

// argument is a flag among a program's arguments.
type argument struct {
	flag, value string
	// item is the number of the argument that has the value, and prefix what stands
	// before it there.
	item   int
	prefix string
}

// arguments finds our flags, by name. It fails where what etcd would make of the
// arguments is not plain.
func arguments(args []string) (map[string]argument, error) {
	found := map[string]argument{}
	for i := 0; i < len(args); i++ {
		if strings.ContainsAny(args[i], " \t\n") && strings.Contains(args[i], "-initial-") {
			return nil, errors.New("a shell reads them")
		}
		name, dashed := strings.CutPrefix(args[i], "-")
		if !dashed {
			continue
		}
		name = strings.TrimPrefix(name, "-")
		name, value, whole := strings.Cut(name, "=")
		if name == "config-file" {
			return nil, errors.New("--config-file is given, and etcd reads nothing else then")
		}
		if (&Flags{}).at(name) == nil {
			continue
		}
		a := argument{flag: name, value: value, item: i}
		if whole {
			a.prefix = strings.TrimSuffix(args[i], value)
		} else {
			if i+1 == len(args) {
				return nil, fmt.Errorf("--%s has no value", name)
			}
			i++
			a.item, a.value = i, args[i]
		}
		if _, twice := found[name]; twice {
			return nil, fmt.Errorf("--%s is given twice", name)
		}
		found[name] = a
	}
	return found, nil
}

// fromArguments are the flags that a program's arguments give.
func fromArguments(args []string) (f Flags, err error) {
	found, err := arguments(args)
	for name, a := range found {
		*f.at(name) = a.value
	}
	return f, err
}

// edit puts text in the place of what stands from start to end.
type edit struct {
	start, end int
	text       string
}

// applyEdits gives data with all edits, which don't overlap. Those at the same place
// come out in their order.
func applyEdits(data []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(data[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(data[at:])
	return out.Bytes()
}

// lineAt gives the line around an offset: where it starts, where its text ends, and
// where the next one starts, which is the end of the data behind the last one.
func lineAt(data []byte, offset int) (start, end, next int) {
	start = bytes.LastIndexByte(data[:offset], '\n') + 1
	end = len(data)
	next = end
	if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
		end, next = offset+i, offset+i+1
	}
	if end > start && data[end-1] == '\r' && end < next {
		end--
	}
	return start, end, next
}

// below is an edit that adds a line below the one around an offset.
func below(data []byte, offset int, line string) edit {
	_, end, next := lineAt(data, offset)
	if end == next { // the last line, without an end of its own
		return edit{end, end, "\n" + line}
	}
	return edit{next, next, line + string(data[end:next])}
}

// token is where a value stands in YAML, with its quotes.
type token struct {
	start, end int
	quote      string // empty where there is none
	brackets   bool   // it is in a list in brackets, as JSON has them
}

// token finds a value in the text. It fails where what stands there is not, byte for
// byte, a value of one line.
func (m *flagManifest) token(n *yaml.Node) (token, error) {
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
func (m *flagManifest) add(behind *yaml.Node, value string) (edit, error) {
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
