package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/yamlfile"
)

// least is the smallest configuration.
const least = "name: m1\netcd: {endpoints: ['http://127.0.0.1:2379']}\nrepository: {url: file:///backups}\n"

func none(string) string { return "" }

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := ParseWith([]byte(text), "agent.yaml", none)
	require.NoError(t, err)
	return c
}

func TestDefaults(t *testing.T) {
	c := parse(t, least)
	if c.Archiving() || c.Archive.Interval.Std() != DiskInterval || c.Objectives.RecoveryPoint.Std() != 2*day {
		t.Errorf("without a member: %s", c)
	}
	c = parse(t, least+"member: {data-dir: /var/lib/etcd}\narchive: {spool-dir: /spool}\n")
	if !c.Archiving() || c.Objectives.RecoveryPoint.Std() != time.Minute {
		t.Errorf("with a member: %s", c)
	}
	c = parse(t, strings.Replace(least, "file:///backups", "s3://bucket/p", 1)+"member: {data-dir: /var/lib/etcd}\narchive: {interval: 30s, spool-dir: /spool}\n")
	if c.Objectives.RecoveryPoint.Std() != 3*time.Minute {
		t.Errorf("six intervals: %s", c.Objectives.RecoveryPoint)
	}
	if c := parse(t, strings.Replace(least, "file:///backups", "s3://bucket/p", 1)); c.Archive.Interval.Std() != 10*time.Second {
		t.Errorf("to S3: %s", c.Archive.Interval)
	}
	if c := parse(t, "repository: {url: file:///b}\nmember: {data-dir: /var/lib/etcd}\narchive: {spool-dir: /spool}\n"); !slices.Equal(c.Etcd.Endpoints, []string{client.DefaultEndpoint}) {
		t.Errorf("endpoints beside a member: %s", c)
	}
	if !c.Given("archive.interval") || c.Given("archive.size") {
		t.Error("what stands in the file is not distinguished from defaults")
	}
}

// Promise 2 of the package: all faults at once, each with file, line, key and what
// to write.
func TestAllFaultsAtOnce(t *testing.T) {
	text := `name: m 1
etcd:
  endpoints: [http://127.0.0.1:2379]
  dial_timeout: 5s
  command-timeout: soon
repository:
  url: file:///backups
  retry-for:
jobs:
  full: {schedule: '61 * * * *', jitter: -1h}
  prune: {run: yes}
retention: {minimum: 0}
log: {level: loud}
`
	_, err := ParseWith([]byte(text), "agent.yaml", none)
	for _, want := range []string{
		`agent.yaml, line 1: name: "m 1" is no name`,
		`line 4: etcd.dial_timeout: unknown key: did you mean "dial-timeout"?`,
		`line 5: etcd.command-timeout: "soon" is no length of time: write 90s`,
		`line 8: repository.retry-for: there is no value`,
		`line 10: jobs.full.schedule: "61 * * * *" is no cron expression`,
		`line 10: jobs.full.jitter: "-1h" is no length of time`,
		`line 11: jobs.prune.run: "yes" is none of lease, here and off`,
		`line 12: retention.minimum: 0 would let the last backup go: write 1`,
		`line 13: log.level: "loud" is not known: write debug, info, warn, error`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if n := strings.Count(fmt.Sprint(err), "\n") + 1; n != 9 {
		t.Errorf("%d faults, want 9:\n%v", n, err)
	}
	var fault *yamlfile.Fault
	if !errors.As(err, &fault) {
		t.Error("no Fault within")
	}
}

// A tab has its line, which the library does not name; and only a key that is near
// is proposed.
func TestTabsAndNearKeys(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"name: m1\n\tetcd: 1\n", "agent.yaml, line 2: no YAML: a tab indents it: write spaces"},
		{"name: m1\netcd:\n  user: x\n  \tuser: y\n", "agent.yaml, line 4: no YAML: a tab"},
		{"\tname: x\n", "agent.yaml, line 1: no YAML: a tab"},
		{least + "bogus: 1\n", "bogus: unknown key: docs/agent-configuration.md has them all"},
		{least + "jbos: 1\n", `jbos: unknown key: did you mean "jobs"?`},
		{least + "retentoin: 1\n", `did you mean "retention"?`},
		{least + "job: 1\n", `did you mean "jobs"?`},
	} {
		_, err := ParseWith([]byte(c.text), "agent.yaml", none)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want …%s…", c.text, err, c.want)
		}
	}
	parse(t, strings.Replace(least, "name: m1", "name:\tm1 # a\ttab", 1))
}

// Promise 1 of the package: nothing is accepted and then ignored.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, more, want string }{
		{"nothing", "", ""},
		{"two documents", "---\nname: x\n", "more than one document"},
		{"twice", "name: m2\n", "twice"},
		{"no mapping", "member: here\n", "want keys and values"},
		{"a list for one value", "time-zone: [UTC]\n", "want one value"},
		{"an empty list", "attachments: []\n", "no value"},
		{"@every", "jobs: {prune: {schedule: '@every 6h'}}\n", "no two would agree"},
		{"a zone in a schedule", "jobs: {prune: {schedule: 'TZ=UTC 0 6 * * *'}}\n", "time-zone"},
		{"a day that never comes", "jobs: {prune: {schedule: '0 0 30 2 *'}}\n", "no such day ever comes"},
		{"no schedule of a job that is off", "jobs: {prune: {run: off, schedule: nonsense}}\n", "is no cron expression"},
		{"jitter over the period", "jobs: {merge: {jitter: 1h}}\n", "not shorter than"},
		{"none of the jobs", "jobs: all\n", "write default or none"},
		{"nothing asks for a snapshot", "jobs: none\n", "no archived log asks for it: add member.data-dir"},
		{"never runs", "jobs: {structure: {after-full: false}}\n", "never run"},
		{"relative path", "member: {data-dir: etcd}\narchive: {spool-dir: /s}\n", "relative"},
		{"archive without effect", "archive: {interval: 10s}\n", "no effect"},
		{"heartbeat without effect", "heartbeat: {every: 2m}\n", "no effect"},
		{"key without certificate", "listen: {key: /k}\n", "listen.cert"},
		{"client CA in plain text", "listen: {client-ca: /ca}\n", "need TLS"},
		{"beyond loopback", "listen: {address: ':2390'}\n", "plain text to other machines"},
		{"no upload", "repository: {url: file:///b, limit-upload: 0}\n", "twice"},
		{"grace", "retention: {grace: 1h}\n", "24h at least"},
		{"too little for any job", "resources: {job-memory: 192MiB}\n", "write 256MiB at least"},
		{"recovery point", "member: {data-dir: /e}\narchive: {interval: 1m, spool-dir: /s}\nobjectives: {recovery-point: 90s}\n", "cannot be kept"},
		{"user without password", "etcd: {}\n", "twice"},
		{"no YAML", "a: b: c\n", "no YAML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseWith([]byte(least+c.more), "agent.yaml", none)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
	for _, text := range []string{"", "# nothing\n", "repository:\n"} {
		_, err := ParseWith([]byte(text), "agent.yaml", none)
		require.ErrorContains(t, err, "repository", "%q", text)
	}
}

// Jobs that open what is stored are off by default if the agent holds recipients alone,
// and refused if the file turns them on; a verifier with the identity may do them without a cluster.
func TestIdentityNeeded(t *testing.T) {
	const recipient = "encryption: {recipients: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	_, err := ParseWith([]byte(least+recipient+"}\njobs: {structure: {run: lease}, merge: {run: here}, drill: {run: lease}}\n"), "agent.yaml", none)
	for _, job := range []string{"structure", "merge", "drill"} {
		require.ErrorContains(t, err, "jobs."+job+".run: off", job)
	}
	for more, runs := range map[string]bool{"}\n": false, ", identity-files: /id}\n": true} {
		if c := parse(t, least+recipient+more); c.Jobs.Structure.Runs() != runs || c.Jobs.Merge.Runs() != runs || !c.Jobs.Checksum.Runs() {
			t.Errorf("by default with recipient%s: %s", more, c)
		}
	}
	_, verifier, _ := strings.Cut(pageHead, "```\nname: verifier")
	verifier, _, _ = strings.Cut(verifier, "```")
	c := parse(t, "name: verifier"+strings.Replace(verifier, "age1…", recipient[len("encryption: {recipients: "):], 1))
	if c.HasCluster() || c.HasMember() || !c.Jobs.Drill.Runs() {
		t.Errorf("the page's verifier: %s", c)
	}
}

// `jobs: none` leaves what the archive needs: full snapshots without a schedule, and
// merging.
func TestJobs_None_OnlyArchive(t *testing.T) {
	const archiving = least + "member: {data-dir: /var/lib/etcd}\narchive: {spool-dir: /spool}\n"
	c := parse(t, archiving+"jobs: none\n")
	var run []string
	for _, j := range c.Jobs.All() {
		if j.Timing.Runs() {
			run = append(run, j.Name)
		}
	}
	if !slices.Equal(run, []string{"full", "merge"}) || c.Jobs.Full.Schedule != "" || c.Jobs.Full.MaxLog != 0 {
		t.Errorf("jobs: none runs %v: %s", run, c)
	}
	if c, d := parse(t, archiving+"jobs: default\n"), parse(t, archiving); c.String() != d.String() {
		t.Errorf("jobs: default is\n%s\nwant\n%s", c, d)
	}
}

// Promise 4 of the package: no printed form and no error has a secret.
func TestSecretsAreHidden(t *testing.T) {
	const secret = "hunter2"
	c := parse(t, least+"heartbeat: {url: 'https://ping/"+secret+"'}\n")
	data, err := json.Marshal(c)
	require.NoError(t, err)
	for _, text := range []string{c.String(), string(data), fmt.Sprintf("%v %+v %#v", c, *c, c.Heartbeat), c.LogValue().String()} {
		if strings.Contains(text, secret) {
			t.Errorf("printed: %s", text)
		}
	}
	if u, err := c.HeartbeatURL(); err != nil || !strings.HasSuffix(u, secret) {
		t.Errorf("%s, %v", u, err)
	}
	for _, wrong := range []string{
		"heartbeat: {url: 'ftp://" + secret + "'}\n",
		"etcd: {endpoints: ['https://root:" + secret + "@host:2379'], user: 'root:" + secret + "'}\n",
		"encryption: {recipients: AGE-SECRET-KEY-" + secret + "}\n",
		"encryption:\n  recipients: *" + secret + "\n",
		"log: '" + secret + "\n",
	} {
		if _, err := ParseWith([]byte("repository: {url: file:///b}\n"+wrong), "agent.yaml", none); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// What is served in plain text stays on this host, unless that is asked for.
func TestPlaintextStaysAtHome(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, "127.9.9.9:0": true,
		"0.0.0.0:0": false, ":0": false, "[::]:0": false, "10.0.0.1:0": false, "etcd-1:0": false, "localhost.evil.example:0": false,
	} {
		text := least + "listen: {address: '" + address + "'"
		if _, err := Parse([]byte(text+"}\n"), "agent.yaml"); (err == nil) != ok {
			t.Errorf("%s in plain text: %v", address, err)
		}
		if _, err := Parse([]byte(text+", allow-plaintext: true}\n"), "agent.yaml"); err != nil {
			t.Errorf("%s, allowed: %v", address, err)
		}
	}
}

func TestPeriods(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for schedule, want := range map[string][2]time.Duration{
		"0 */6 * * *": {5 * time.Hour, 7 * time.Hour}, // clocks are changed
		"0 1 * * *":   {23 * time.Hour, 25 * time.Hour},
		"@hourly":     {time.Hour, time.Hour},
		"0 0 1 * *":   {28*day - 0, 31*day + time.Hour},
		"0 0 1 1 *":   {365 * day, 366 * day},

		"*/10 8-17 * * 1-5": {10 * time.Minute, 62*time.Hour + 10*time.Minute},
		"0 0 30 2 *":        {0, 0}, "": {0, 0}, "x": {0, 0},
	} {
		shortest, longest := Periods(schedule, berlin)
		if shortest < want[0]-time.Hour || longest > want[1]+time.Hour || shortest > longest || longest < want[1]-2*time.Hour {
			t.Errorf("%s: %s to %s", schedule, shortest, longest)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte("a: &a [*a]\njobs: {full: *a}\n"))
	f.Add([]byte("attachments: [{name: a, path: /a}, 3, /b]\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseWith(data, "agent.yaml", none)
		if (c == nil) == (err == nil) {
			t.Errorf("%v and %v", c, err)
		}
	})
}
