package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

type suites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Time     string   `xml:"time,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Suite    suite    `xml:"testsuite"`
}

type suite struct {
	Name       string     `xml:"name,attr"`
	Tests      int        `xml:"tests,attr"`
	Failures   int        `xml:"failures,attr"`
	Errors     int        `xml:"errors,attr"`
	Time       string     `xml:"time,attr"`
	Timestamp  string     `xml:"timestamp,attr"`
	Properties []property `xml:"properties>property"`
	Cases      []testcase `xml:"testcase"`
	SystemOut  string     `xml:"system-out,omitempty"`
}

type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type testcase struct {
	Name      string  `xml:"name,attr"`
	Classname string  `xml:"classname,attr"`
	Time      string  `xml:"time,attr"`
	Failure   *result `xml:"failure"`
	Error     *result `xml:"error"`
	SystemOut string  `xml:"system-out,omitempty"`
}

type result struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes a report as the XML that CI systems read (Jenkins, GitLab,
// GitHub's test reporters), valid by the schema of Jenkins' xUnit plugin
// (junit-10.xsd): one test suite with a test case for each level and
// object: its class name is the level, its name the object. Damage is a failure,
// what could not be checked an error. A report without checks is one error:
// nothing was proved.
func WriteJUnit(w io.Writer, r *Report) error {
	s := suite{
		Name:       Printable("requorum verify " + r.Target),
		Time:       seconds(r.Finished.Sub(r.Started)),
		Timestamp:  r.Started.UTC().Format("2006-01-02T15:04:05"),
		Properties: properties(r),
		Cases:      cases(r),
		SystemOut:  lines(r.Notes),
	}
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		if c.Failure != nil {
			s.Failures++
		}
		if c.Error != nil {
			s.Errors++
		}
	}
	all := suites{Name: "requorum verify", Time: s.Time, Tests: s.Tests, Failures: s.Failures, Errors: s.Errors, Suite: s}
	data, err := xml.MarshalIndent(all, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, data)
	}
	if err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	return nil
}

func properties(r *Report) []property {
	return []property{
		{"tool", Printable(r.Tool)},
		{"target", Printable(r.Target)},
		{"level", Printable(string(r.Level))},
		{"status", string(r.Status())},
	}
}

// cases puts checks of the same level and object together, in the order of the
// report.
func cases(r *Report) []testcase {
	type key struct {
		level  Level
		object string
	}
	checks := map[key][]Check{}
	var keys []key
	for _, c := range r.Checks {
		k := key{c.Level, c.Object}
		if _, known := checks[k]; !known {
			keys = append(keys, k)
		}
		checks[k] = append(checks[k], c)
	}
	if len(keys) == 0 {
		const text = "nothing was checked, so nothing is proved"
		return []testcase{{
			Classname: Printable(string(r.Level)), Name: Printable(r.Target), Time: seconds(0),
			Error: &result{Type: string(Unchecked), Message: text, Text: text},
		}}
	}
	var all []testcase
	for _, k := range keys {
		all = append(all, caseOf(checks[k]))
	}
	return all
}

// caseOf makes a test case of checks of one level and object.
func caseOf(checks []Check) testcase {
	var took time.Duration
	var compared, faults, reasons []string
	var kind Kind
	for _, c := range checks {
		took += c.Took
		compared = append(compared, c.Compared)
		for _, f := range c.Findings {
			if kind == "" {
				kind = f.Kind
			}
			faults = append(faults, fmt.Sprintf("%s: %s", f.Kind, f))
		}
		if c.Status == Damaged && len(c.Findings) == 0 {
			faults = append(faults, "damaged")
		}
		if c.NotYet {
			compared = append(compared, c.Reason)
		} else if c.Status != Passed && c.Status != Damaged {
			reasons = append(reasons, cmp.Or(c.Reason, "it could not be checked; no reason is given"))
		}
		for _, p := range c.Phases {
			compared = append(compared, fmt.Sprintf("%s: %s s", p.Name, seconds(p.Took)))
		}
	}
	t := testcase{
		Classname: Printable(string(checks[0].Level)), Name: Printable(checks[0].Object),
		Time: seconds(took), SystemOut: lines(compared),
	}
	switch {
	case len(faults) > 0:
		if kind == "" {
			kind = Kind(Damaged)
		}
		t.Failure = newResult(string(kind), "faults", append(faults, reasons...), len(faults))
	case len(reasons) > 0:
		t.Error = newResult(string(Unchecked), "reasons", reasons, len(reasons))
	}
	return t
}

// newResult says the first of its lines where only one is shown, and how many
// more there are.
func newResult(kind, what string, all []string, count int) *result {
	message := all[0]
	if count > 1 {
		message = fmt.Sprintf("%s (the first of %d %s)", message, count, what)
	}
	return &result{Type: Printable(kind), Message: Printable(message), Text: lines(all)}
}

// seconds writes a time as the schema wants it: no sign, no exponent.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) }

// lines is printable text of several lines: none of them can pretend to be two.
func lines(all []string) string {
	var b strings.Builder
	for i, one := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(Printable(one))
	}
	return b.String()
}
