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

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/yamlfile"
)

var update = flag.Bool("update", false, "write generated files anew")

const page = "../../docs/agent-configuration.md"

// docs/agent-configuration.md is made of the types' comments and of Default, so
// that it stays true. Each key has a text and a reason for its default.
func TestReference(t *testing.T) {
	r := &reference{t: t, comments: comments(t)}
	fmt.Fprint(&r.out, pageHead)
	example, err := os.ReadFile(filepath.Join("testdata", "example.yaml"))
	require.NoError(t, err)
	fmt.Fprintf(&r.out, "\n## A complete example\n\n```yaml\n%s```\n\n## All keys\n", example)
	r.table("", "Config", reflect.ValueOf(Default()).Elem())
	if *update {
		require.NoError(t, os.WriteFile(page, r.out.Bytes(), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
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
	require.NoError(t, err)
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
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
	if typ == "Jobs" {
		r.jobs(v)
	}
	var rows bytes.Buffer
	var sections []func()
	r.rows(&rows, &sections, path, typ, v)
	if rows.Len() > 0 {
		fmt.Fprintf(&r.out, "\n| key | default, or type | |\n| --- | --- | --- |\n%s", rows.String())
	}
	for _, section := range sections {
		section()
	}
}

// jobs writes once what all of them have: the keys of Timing, and their defaults.
func (r *reference) jobs(v reflect.Value) {
	fmt.Fprint(&r.out, "\n| key of each job | |\n| --- | --- |\n")
	timing := reflect.TypeFor[Timing]()
	columns := ""
	for i := range timing.NumField() {
		f := timing.Field(i)
		text := r.comments["Timing."+f.Name].text
		if text == "" {
			r.t.Errorf("Timing.%s: the comment lacks what it does", f.Name)
		}
		fmt.Fprintf(&r.out, "| `%s` | %s |\n", f.Tag.Get("yaml"), text)
		columns += " `" + f.Tag.Get("yaml") + "` |"
	}
	fmt.Fprintf(&r.out, "\n| job | what it does, and why these defaults |%s\n| --- | --- |%s\n", columns, strings.Repeat(" --- |", timing.NumField()))
	for i := range v.NumField() {
		job := v.Type().Field(i)
		reason := r.comments[job.Type.Name()+".Timing"].reason
		if reason == "" {
			r.t.Errorf("%s: the comment of its Timing lacks \"Default:\" with the reason", job.Type.Name())
		}
		_, text, _ := strings.Cut(r.comments[job.Type.Name()].text, " ") // "Full takes …"
		fmt.Fprintf(&r.out, "| `%s` | %s |", job.Tag.Get("yaml"), strings.ToUpper(text[:1])+text[1:]+" "+why(reason))
		for j := range timing.NumField() {
			fmt.Fprintf(&r.out, " %s |", initial(v.Field(i).FieldByName("Timing").Field(j)))
		}
		fmt.Fprintln(&r.out)
	}
}

func (r *reference) rows(rows *bytes.Buffer, sections *[]func(), path, typ string, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, value := f.Tag.Get("yaml"), v.Field(i)
		c := r.comments[typ+"."+f.Name]
		switch {
		case tag == "" || tag == "-" || strings.HasSuffix(tag, ",inline"): // jobs writes what is inlined
		case f.Type.Kind() == reflect.Struct && (typ != "Jobs" || f.Type.NumField() > 1):
			*sections = append(*sections, func() { r.table(strings.TrimPrefix(path+"."+tag, "."), f.Type.Name(), value) })
		case f.Type.Kind() == reflect.Struct:
		default:
			if c.text == "" || c.reason == "" {
				r.t.Errorf("%s.%s: the comment lacks what it does, or \"Default:\" with the reason", typ, f.Name)
			}
			names := tag
			if flag := flagsByKey[strings.TrimPrefix(path+"."+tag, ".")]; flag != "" {
				names += "`, `" + flag
			}
			fmt.Fprintf(rows, "| `%s` | %s | %s |\n", names, initialOrKind(value), strings.TrimSpace(c.text+" "+why(c.reason)))
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				elem := f.Type.Elem()
				*sections = append(*sections, func() { r.table(strings.TrimPrefix(path+"."+tag, ".")+"[]", elem.Name(), reflect.New(elem).Elem()) })
			}
		}
	}
}

func why(reason string) string {
	if reason == "" || reason == "none." { // the column of defaults says that
		return ""
	}
	return "*" + strings.ToUpper(reason[:1]) + reason[1:] + "*"
}

func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[yamlfile.Duration]():
		return "duration"
	case t == reflect.TypeFor[yamlfile.Bytes]():
		return "bytes"
	case t == reflect.TypeFor[Secret]():
		return "secret"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return "list"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Bool:
		return "yes/no"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Uint64:
		return "number"
	}
	return "text"
}

// initialOrKind is the default, or where there is none what to write.
func initialOrKind(v reflect.Value) string {
	if s := initial(v); s != "–" {
		return s
	}
	return kind(v.Type())
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
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(data), "```yaml\n")
	example, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("no example in the page")
	}
	c, err := ParseWith([]byte(example), "example.yaml", func(string) string { return "" })
	require.NoError(t, err)
	if w := c.Warnings(); len(w) > 0 {
		t.Errorf("the example has warnings: %v", w)
	}
	if !c.Archiving() || !c.Encrypted() || c.Jobs.Structure.Runs() || c.Objectives.RecoveryPoint != yamlfile.Duration(60e9) {
		t.Errorf("not what the example says: %s", c)
	}
	// Without comments it has each section of the reference.
	for _, f := range []string{"etcd", "member", "repository", "encryption", "archive", "jobs", "retention", "attachments", "resources", "objectives", "listen", "heartbeat", "log"} {
		if !c.Given(f) {
			t.Errorf("the example lacks %s", f)
		}
	}
}

const pageHead = `# The agent's configuration

` + "`requorum agent --config FILE`" + ` reads one YAML file. Unknown keys, keys without a
value and contradictions are errors that name file, line, key and what to write. (Made by
` + "`go test ./schedule/config -run TestReference -update`" + ` from the types there.)

- Without a file, flags set the keys that have one below.
- ` + "`requorum agent --config FILE --check-config`" + ` checks the file and the files that it
  names, without the network; ` + "`requorum doctor --agent-config FILE`" + ` tries everything.
- SIGHUP reads the file again; a faulty one is refused, and the old one stays in force.

A **duration** is 90s, 1h30m, 7d or 2w, **bytes** are 512KiB, 50MiB, 2GiB, **yes/no** is
true or false. If there is no default, the type stands in its place. In italics: what
applies then, and reasons.

**Secrets** need not stand here: ` + "`etcd.password-file`, `heartbeat.url-file`" + `,
or REQUORUM_ETCD_PASSWORD and REQUORUM_HEARTBEAT_URL. For S3 see
[s3.md](s3.md#credentials).

**An agent without an identity** (` + "`encryption.identity-files`" + `) cannot read what it
encrypted: its jobs structure and merge are off, and run on a
[verifier](agent.md#a-verifier-of-its-own), without ` + "`etcd.endpoints` and `member`" + `:

` + "```" + `
name: verifier
repository: {url: 's3://backups/etcd?region=eu-central-1'}
encryption: {recipients: [age1…], identity-files: [/etc/requorum/identity.txt]}
jobs:
  full: {run: off}
  divergence: {run: off}
  replay: {run: here}
  drill: {run: here}
` + "```" + `
`
