package report

import (
	"bytes"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// schemas are what reports are held against: ours, which is the narrower one,
// and the file that REQUORUM_JUNIT_XSD names, such as Jenkins' junit-10.xsd.
func schemas(t testing.TB) []string {
	t.Helper()
	storetest.Program(t, "xmllint") // Debian's package libxml2-utils
	all := []string{filepath.Join("testdata", "junit.xsd")}
	if other := os.Getenv("REQUORUM_JUNIT_XSD"); other != "" {
		all = append(all, other)
	}
	return all
}

// valid gives what xmllint says against document; empty if it is valid.
func valid(t testing.TB, schema string, document []byte) string {
	t.Helper()
	cmd := exec.Command("xmllint", "--noout", "--nonet", "--schema", schema, "-")
	cmd.Stdin = bytes.NewReader(document)
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out)
	}
	return ""
}

func written(t testing.TB, r *Report) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteJUnit(&b, r))
	return b.Bytes()
}

// hostile is a name that no CI system should have to obey.
const hostile = "a\x00b\x1b[2Jc\r\nd\u202ee\xff<&>\"']]>\ufffe\U000e0041é日"

func full() *Report {
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	return &Report{
		Target: "s3://bucket/" + hostile, Level: Drill, Tool: "requorum 1.2.3",
		Started: start, Finished: start.Add(90*time.Minute + 1500*time.Microsecond),
		Notes: []string{"a note", hostile},
		Checks: []Check{
			{Level: Checksum, Status: Passed, Object: "t/full/a", Compared: "bytes with sums", Took: time.Second},
			{Level: Structure, Status: Damaged, Object: "t/full/a", Compared: hostile, Took: 2 * time.Second, Findings: []Finding{
				{Kind: KindPage, Where: "page 17", Text: "it is used twice"},
				{Kind: KindHistory, Where: hostile, Text: hostile},
			}},
			{Level: Structure, Status: Damaged, Object: "t/full/a", Compared: "a second check of the same", Findings: []Finding{
				{Kind: KindHash, Text: "it is 1, not 2"},
			}},
			{Level: Replay, Status: Unchecked, Object: "t/full/a", Compared: "the log", Reason: "no backup is before it"},
			{Level: Drill, Status: Passed, Object: hostile, Compared: "reads", Phases: []Phase{{Name: "boot", Took: 1234 * time.Millisecond}}},
			{Level: Drill, Status: Damaged, Object: "damaged without a finding"},
			{Level: Drill, Status: "other", Object: "of a status that nobody knows"},
		},
	}
}

// Issue 4, point 4: reports are valid by the schema, whatever names the backup
// holds; one without checks too.
func TestValid(t *testing.T) {
	for _, schema := range schemas(t) {
		for _, r := range []*Report{full(), {Target: "t", Level: Checksum}} {
			if document := written(t, r); valid(t, schema, document) != "" {
				t.Errorf("%s\n%s", valid(t, schema, document), document)
			}
		}
		// The schema refuses something, and so can fail.
		broken := bytes.Replace(written(t, full()), []byte("errors="), []byte("mistakes="), 1)
		if valid(t, schema, broken) == "" {
			t.Errorf("%s takes anything", schema)
		}
	}
}

// One test case per level and object; damage is a failure, could-not-check an
// error, and all faults are in the text.
func TestCases(t *testing.T) {
	var all suites
	require.NoError(t, xml.Unmarshal(written(t, full()), &all))
	s := all.Suite
	if s.Tests != 6 || s.Failures != 2 || s.Errors != 2 || len(s.Cases) != 6 || all.Tests != 6 || all.Failures != 2 || all.Errors != 2 {
		t.Fatalf("%d tests, %d failures, %d errors, %d cases", s.Tests, s.Failures, s.Errors, len(s.Cases))
	}
	if s.Time != "5400.002" || s.Timestamp != "2026-01-02T02:04:05" {
		t.Errorf("time %s, timestamp %s", s.Time, s.Timestamp)
	}
	passed, damaged, unchecked, drill := s.Cases[0], s.Cases[1], s.Cases[2], s.Cases[3]
	if passed.Classname != "checksum" || passed.Name != "t/full/a" || passed.Failure != nil || passed.Error != nil || passed.Time != "1.000" {
		t.Errorf("%+v", passed)
	}
	f := damaged.Failure
	if f == nil || damaged.Error != nil || f.Type != "page" || f.Message != "page: page 17: it is used twice (the first of 3 faults)" || strings.Count(f.Text, "\n") != 2 || !strings.HasSuffix(f.Text, "\nhash: it is 1, not 2") {
		t.Errorf("%+v", f)
	}
	if e := unchecked.Error; e == nil || unchecked.Failure != nil || e.Message != "no backup is before it" || e.Type != "unchecked" {
		t.Errorf("%+v", e)
	}
	if drill.SystemOut != "reads\nboot: 1.234 s" {
		t.Errorf("%q", drill.SystemOut)
	}
	if f := s.Cases[4].Failure; f == nil || f.Message != "damaged" {
		t.Errorf("damage without a finding: %+v", s.Cases[4])
	}
	if s.Cases[5].Error == nil {
		t.Errorf("a status that is not known passed: %+v", s.Cases[5])
	}
}

// Who checked nothing has proved nothing, and a gate must not open.
func TestNothingChecked(t *testing.T) {
	var all suites
	require.NoError(t, xml.Unmarshal(written(t, &Report{Target: "t", Level: Checksum}), &all))
	if all.Tests != 1 || all.Errors != 1 || all.Suite.Cases[0].Error == nil {
		t.Fatalf("%+v", all)
	}
}

func TestPrintable(t *testing.T) {
	const want = `a\x00b\x1b[2Jc\r\nd\u202ee\xff<&>"']]>\ufffe\U000e0041é日`
	if got := Printable(hostile); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzWrite writes reports with arbitrary names: any XML parser reads them, and
// nothing in them is a control character.
func FuzzWrite(f *testing.F) {
	f.Add(hostile, "text")
	f.Fuzz(func(t *testing.T, name, text string) {
		document := written(t, &Report{Target: name, Level: Level(name), Checks: []Check{
			{Level: Checksum, Status: Damaged, Object: name, Findings: []Finding{{Kind: Kind(text), Text: text}}},
			{Level: Checksum, Status: Unchecked, Object: text, Reason: name},
		}})
		if !utf8.Valid(document) || bytes.ContainsFunc(document, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == '\u202e' }) {
			t.Fatalf("%q", document)
		}
		var all suites
		require.NoError(t, xml.Unmarshal(document, &all))
	})
}
