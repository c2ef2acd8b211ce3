package config

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write generated files anew")

const page = "../../docs/agent-configuration.md"

// docs/agent-configuration.md is made of the types' comments and of Default, so
// that it stays true. Each key has a text and a reason for its default.
func TestReference(t *testing.T) {
	r := &reference{t: t, comments: comments(t)}
	fmt.Fprint(&r.out, pageHead)
	example, err := os.ReadFile(filepath.Join("testdata", "example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&r.out, "\n## A complete example\n\n```yaml\n%s```\n\n## All keys\n", example)
	r.table("", "Config", reflect.ValueOf(Default()).Elem())
	if *update {
		if err := os.WriteFile(page, r.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, r.out.Bytes()) {
		t.Errorf("%s is not what the types say any more: run this test with -update", page)
	}
}

type comment struct{ text, reason string }

type reference struct {
	t        *testing.T
	out      bytes.Buffer
	comments map[string]comment // by Type.Field, and by Type for sections
}

// comments reads those of all types of the package.
func comments(t *testing.T) map[string]comment {
	all := map[string]comment{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range tree.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				typ := spec.(*ast.TypeSpec)
				all[typ.Name.Name] = comment{text: oneLine(gen.Doc.Text())}
				st, ok := typ.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range st.Fields.List {
					name := ""
					if len(field.Names) > 0 {
						name = field.Names[0].Name
					} else if id, ok := field.Type.(*ast.Ident); ok {
						name = id.Name
					}
					text, reason, _ := strings.Cut("\n"+field.Doc.Text(), "\nDefault: ")
					all[typ.Name.Name+"."+name] = comment{oneLine(text), oneLine(reason)}
				}
			}
		}
	}
	return all
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// table writes the keys of a struct, and after it those of the sections in it.
func (r *reference) table(path, typ string, v reflect.Value) {
	if path != "" {
		text := r.comments[typ].text
		_, text, _ = strings.Cut(text, " ") // "Etcd is how …"
		text = strings.ToUpper(text[:1]) + text[1:]
		for _, verb := range []string{"Is ", "Are "} {
			if rest, has := strings.CutPrefix(text, verb); has {
				text = strings.ToUpper(rest[:1]) + rest[1:]
			}
		}
		fmt.Fprintf(&r.out, "\n### `%s`\n\n%s\n", path, text)
	}
	var rows bytes.Buffer
	var sections []func()
	r.rows(&rows, &sections, path, typ, v, "")
	if rows.Len() > 0 {
		fmt.Fprintf(&r.out, "\n| key | type | default | what it does, and why the default |\n| --- | --- | --- | --- |\n%s", rows.String())
	}
	for _, section := range sections {
		section()
	}
}

func (r *reference) rows(rows *bytes.Buffer, sections *[]func(), path, typ string, v reflect.Value, inlinedReason string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, value := f.Tag.Get("yaml"), v.Field(i)
		c := r.comments[typ+"."+f.Name]
		switch {
		case tag == "" || tag == "-":
		case strings.HasSuffix(tag, ",inline"):
			r.rows(rows, sections, path, f.Type.Name(), value, c.reason)
		case f.Type.Kind() == reflect.Struct:
			*sections = append(*sections, func() { r.table(join(path, tag), f.Type.Name(), value) })
		default:
			reason := c.reason
			if inlinedReason != "" && tag == "enabled" {
				reason = inlinedReason
			}
			if c.text == "" || reason == "" && inlinedReason == "" {
				r.t.Errorf("%s.%s: the comment lacks what it does, or \"Default:\" with the reason", typ, f.Name)
			}
			fmt.Fprintf(rows, "| `%s` | %s | %s | %s |\n", tag, kind(f.Type), initial(value), strings.TrimSpace(c.text+" "+why(reason)))
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				elem := f.Type.Elem()
				*sections = append(*sections, func() { r.table(join(path, tag)+"[]", elem.Name(), reflect.New(elem).Elem()) })
			}
		}
	}
}

func why(reason string) string {
	if reason == "" {
		return ""
	}
	return "*" + strings.ToUpper(reason[:1]) + reason[1:] + "*"
}

func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return "duration"
	case t == reflect.TypeFor[Bytes]():
		return "bytes"
	case t == reflect.TypeFor[Secret]():
		return "text, secret"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return "list of texts"
	case t.Kind() == reflect.Slice:
		return "list of sections"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Uint64:
		return "number"
	}
	return "text"
}

func initial(v reflect.Value) string {
	if v.Kind() != reflect.Bool && v.Kind() != reflect.Int && v.IsZero() {
		return "–"
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

// The example of the page is right, and stands there whole.
func TestExample(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```yaml\n")
	example, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("no example in the page")
	}
	c, err := ParseWith([]byte(example), "example.yaml", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) > 0 {
		t.Errorf("the example has warnings: %v", w)
	}
	if !c.Archiving() || !c.Encrypted() || c.Jobs.Structure.Enabled || c.Objectives.RecoveryPoint != Duration(60e9) {
		t.Errorf("not what the example says: %s", c)
	}
	// Without comments it has each section of the reference.
	for _, f := range []string{"etcd", "member", "repository", "encryption", "archive", "jobs", "retention", "companions", "resources", "objectives", "verdicts", "listen", "heartbeat", "webhook", "log"} {
		if !c.Given(f) {
			t.Errorf("the example lacks %s", f)
		}
	}
}

const pageHead = `# The agent's configuration

` + "`requorum agent --config FILE`" + ` reads one YAML file. It is strict: an unknown key, a
key without a value, a value of the wrong kind and settings that contradict each
other are errors that name file, line, key and what to write, all at once. Made of
the types in schedule/config by ` + "`go test ./schedule/config -run TestReference -update`" + `.

The options of the command line (` + "`requorum --config`" + ` of the other commands, see
[configuration.md](configuration.md)) are another file; the agent does not read it.

- ` + "`requorum agent --config FILE --check-config`" + ` looks at the file and at the keys and
  certificates that it names, and at no network.
- ` + "`requorum doctor --agent-config FILE`" + ` tries everything that the file names, and says
  how to mend what would fail.
- SIGHUP reads the file again. A file with a fault is refused, and the agent goes on
  as it was.

A **duration** is 90s, 1h30m, 7d or 2w (a day has 24 hours). **Bytes** are 512KiB,
50MiB, 2GiB. A list of one text may stand without brackets.

**Secrets** need not stand here: ` + "`etcd.password-file`, `heartbeat.url-file`, `webhook.url-file`" + `,
or the variables REQUORUM_ETCD_PASSWORD, REQUORUM_HEARTBEAT_URL and
REQUORUM_WEBHOOK_URL. Those of S3 come from the SDK's own places ([s3.md](s3.md)).

**An agent without an identity** (` + "`encryption.identity-files`" + `) can take snapshots and
archive, and cannot read what it stored. The jobs structure, replay, drill,
synthetic and merge are refused there: turn them off, and run them on a verifier,
an agent on a host of its own with the identity, without ` + "`etcd.endpoints` and `member`" + `:

` + "```" + `
name: verifier
repository: {url: 's3://backups/etcd?region=eu-central-1'}
encryption: {recipients: [age1…], identity-files: [/etc/requorum/identity.txt]}
jobs:
  full: {enabled: false}
  divergence: {enabled: false}
  synthetic: {enabled: true}
  replay: {enabled: true}
  drill: {enabled: true}
` + "```" + `
`
