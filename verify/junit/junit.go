// Package junit writes a report of verify as the XML that CI systems read:
// Jenkins, GitLab, GitHub's test reporters. It is valid by the schema of
// Jenkins' xUnit plugin (junit-10.xsd).
package junit

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/requorum/requorum/verify/report"
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

// Write writes a report as one test suite with a test case for each rung and
// object: its class name is the rung, its name the object. Damage is a failure,
// what could not be checked an error. A report without checks is one error:
// nothing was proved.
func Write(w io.Writer, r *report.Report) error {
	s := suite{
		Name:       printable("requorum verify " + r.Target),
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

func properties(r *report.Report) []property {
	all := []property{
		{"tool", printable(r.Tool)},
		{"target", printable(r.Target)},
		{"rung", printable(string(r.Rung))},
		{"status", string(r.Status())},
	}
	if s := r.Sample; s != nil {
		all = append(all,
			property{"sample.percent", strconv.FormatFloat(s.Percent, 'f', -1, 64)},
			property{"sample.seed", strconv.FormatUint(s.Seed, 10)},
			property{"sample.coverage", printable(s.Coverage)})
	}
	return all
}

// cases puts checks of the same rung and object together, in the order of the
// report.
func cases(r *report.Report) []testcase {
	type key struct {
		rung   report.Rung
		object string
	}
	checks := map[key][]report.Check{}
	var keys []key
	for _, c := range r.Checks {
		k := key{c.Rung, c.Object}
		if _, known := checks[k]; !known {
			keys = append(keys, k)
		}
		checks[k] = append(checks[k], c)
	}
	if len(keys) == 0 {
		const text = "nothing was checked, so nothing is proved"
		return []testcase{{
			Classname: printable(string(r.Rung)), Name: printable(r.Target), Time: seconds(0),
			Error: &result{Type: string(report.Unchecked), Message: text, Text: text},
		}}
	}
	var all []testcase
	for _, k := range keys {
		all = append(all, caseOf(checks[k]))
	}
	return all
}

// caseOf makes a test case of checks of one rung and object.
func caseOf(checks []report.Check) testcase {
	var took time.Duration
	var compared, faults, reasons []string
	var kind report.Kind
	for _, c := range checks {
		took += c.Took
		compared = append(compared, c.Compared)
		for _, f := range c.Findings {
			if kind == "" {
				kind = f.Kind
			}
			faults = append(faults, fmt.Sprintf("%s: %s", f.Kind, f))
		}
		if c.Status == report.Damaged && len(c.Findings) == 0 {
			faults = append(faults, "damaged")
		}
		if c.Status != report.Passed && c.Status != report.Damaged {
			reasons = append(reasons, cmp.Or(c.Reason, "it could not be checked; no reason is given"))
		}
		for _, p := range c.Phases {
			compared = append(compared, fmt.Sprintf("%s: %s s", p.Name, seconds(p.Took)))
		}
	}
	t := testcase{
		Classname: printable(string(checks[0].Rung)), Name: printable(checks[0].Object),
		Time: seconds(took), SystemOut: lines(compared),
	}
	switch {
	case len(faults) > 0:
		if kind == "" {
			kind = report.Kind(report.Damaged)
		}
		t.Failure = newResult(string(kind), "faults", append(faults, reasons...), len(faults))
	case len(reasons) > 0:
		t.Error = newResult(string(report.Unchecked), "reasons", reasons, len(reasons))
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
	return &result{Type: printable(kind), Message: printable(message), Text: lines(all)}
}

// seconds writes a time as the schema wants it: no sign, no exponent.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) }
