package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/walreplay/archive"
)

type doctorOptions struct {
	conn connFlags
	repo repoFlags

	dataDir, walDir string
	interval        time.Duration
	archivers       int
	spoolDir        string
	spoolLimit      int64

	agentConfig string
}

func (o *doctorOptions) addFlags(f *pflag.FlagSet) {
	o.repo.addFlags(f, true)
	o.repo.retryFor = doctorRetryFor
	f.Lookup("retry-for").DefValue = doctorRetryFor.String()
	o.conn.addFlags(f)
	f.StringVar(&o.dataDir, "data-dir", "", "also check this data directory `DIR` of a member on this host")
	f.StringVar(&o.walDir, "wal-dir", "", "the member's --wal-dir, where it has one of its own")
	durationVar(f, &o.interval, "interval", 0, time.Millisecond, fmt.Sprintf("the archiving interval to reckon with (default %s to a folder, %s to S3)", config.DiskInterval, archive.DefaultInterval))
	f.IntVar(&o.archivers, "archivers", 3, "how many archivers to reckon with: one beside each member")
	f.StringVar(&o.spoolDir, "spool-dir", "", "the archiver's --spool-dir")
	bytesVar(f, &o.spoolLimit, "spool-limit", "2GiB", "the archiver's --spool-limit")
	f.StringVar(&o.agentConfig, "agent-config", "", "try all that this `file` names, the configuration of 'requorum agent', in place of the options here")
}

func newDoctorCommand(g *globals) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [--repo URL] [--endpoints URL,…] [--data-dir DIR] | --agent-config FILE",
		Short: "Check that backing up and archiving would work, and what they would cost",
		Long: `Check what 'requorum backup' and 'requorum archive' would meet: the endpoints and
their versions, the rights in etcd, the member's log files, the repository and
each right in it, the clocks, the room for the spool. Then the requests a day and
their price for the chosen interval.

With --agent-config it tries all that the configuration of 'requorum agent' names
instead: also certificates, keys, attachments, the port, the URLs that are pinged
(nothing is sent there), room for the jobs, and whether retention promises what
the schedules can give.

Nothing is changed, but for a scratch object in each repository and a scratch
file in the folders of the agent, which are deleted again. Checks for which nothing
was given are left out. Status 1 says that something would fail.`,
		Example: `  requorum doctor --endpoints http://127.0.0.1:2379 --data-dir /var/lib/etcd \
      --repo 's3://backups/etcd?region=eu-central-1'
  requorum doctor --agent-config /etc/requorum/agent.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.doctor(cmd.Context(), &o) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// doctorRetryFor is how long a repository that is away is tried again: the doctor is
// asked how things stand now. doctorPatience bounds its first answer.
const (
	doctorRetryFor = time.Second
	doctorPatience = 8 * time.Second
)

// Verdicts of a check.
const (
	checkOK   = "ok"
	checkWarn = "warning" // works, and is worth knowing
	checkFail = "failed"  // backing up or archiving would fail
)

// checkReport is one thing that was looked at.
type checkReport struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // ok, warning, failed
	Text    string `json:"text"`
	Next    string `json:"next,omitempty"` // what to do
}

// doctorReport is the JSON form of `requorum doctor`.
type doctorReport struct {
	OK     bool          `json:"ok"` // nothing would fail
	Checks []checkReport `json:"checks"`
	Costs  []costReport  `json:"costs"` // one for each repository in S3
}

// examination is one run of the command.
type examination struct {
	*globals
	options *doctorOptions
	agent   *config.Config // nil without --agent-config
	report  doctorReport
	survey  *client.Survey // nil where no member answers
}

func (e *examination) add(verdict, check, text, next string) {
	e.report.Checks = append(e.report.Checks, checkReport{check, verdict, text, next})
}

// failed adds a check that failed with err. Each has a next step.
func (e *examination) failed(check string, err error, next string) {
	e.add(checkFail, check, err.Error(), next)
}

// orKey is the option's name, or the key's where the agent's configuration is
// examined.
func (e *examination) orKey(option, key string) string {
	if e.agent != nil {
		return key
	}
	return option
}

func (g *globals) doctor(ctx context.Context, o *doctorOptions) (err error) {
	if o.agentConfig != "" {
		return g.doctorAgent(ctx, o)
	}
	if o.archivers < 1 {
		return usageError{errors.New("--archivers: want more than 0")}
	}
	var all []sinks.Sink
	if len(o.repo.urls) > 0 {
		if all, err = o.repo.openSinks(ctx, g); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeSinks(all)) }()
	}
	client, err := o.conn.connect(ctx, g)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing is under way any more

	e := &examination{globals: g, options: o}
	e.report.Costs = []costReport{}
	e.examineCluster(ctx, client)
	if o.dataDir != "" || o.walDir != "" {
		e.examineMember()
		e.examineSpool(all, o.spoolLimit)
	}
	for _, s := range all {
		e.examineRepository(ctx, s)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.print()
}

func (e *examination) print() error {
	e.report.OK = true
	for _, c := range e.report.Checks {
		e.report.OK = e.report.OK && c.Verdict != checkFail
	}
	if e.output == "json" {
		if err := e.printJSON(e.report); err != nil {
			return err
		}
	} else {
		for _, c := range e.report.Checks {
			e.printf("%-8s %s: %s\n", c.Verdict, c.Check, oneLine(c.Text))
			if c.Next != "" {
				e.printf("         → %s\n", c.Next)
			}
		}
		for _, c := range e.report.Costs {
			e.printCost(c)
		}
	}
	if !e.report.OK {
		return errReported
	}
	return nil
}

// fitsAgentConfig are the options that do not contradict --agent-config.
var fitsAgentConfig = map[string]bool{"agent-config": true, "output": true, "progress": true, "verbose": true}

// doctorAgent tries all that an agent's configuration names.
func (g *globals) doctorAgent(ctx context.Context, o *doctorOptions) error {
	for _, name := range g.typed {
		if !fitsAgentConfig[name] {
			return usageError{fmt.Errorf("--%s is of no use with --agent-config, whose file says it all", name)}
		}
	}
	e := &examination{globals: g, options: o}
	e.report.Costs = []costReport{}
	c, err := config.ReadWith(o.agentConfig, g.getenv)
	if err != nil {
		e.addFaults(checkFail, err)
		return e.print()
	}
	c.Logger = g.logger()
	c.Repository.RetryFor = min(c.Repository.RetryFor, yamlfile.Duration(doctorRetryFor))
	e.agent = c
	o.dataDir, o.walDir = c.Member.DataDir, c.Member.WALDir
	o.interval, o.spoolDir = c.Archive.Interval.Std(), c.Archive.SpoolDir
	e.examineSettings()
	e.examineMembers(ctx)
	if c.HasMember() {
		e.examineMember()
	}
	if err := e.examineAgentRepository(ctx); err != nil {
		return err
	}
	e.examineHost(ctx)
	e.examineHeartbeat(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.print()
}

// addFaults adds each of the faults, also of those that were joined.
func (e *examination) addFaults(verdict string, all ...error) {
	for _, err := range all {
		var fault *yamlfile.Fault
		joined, several := err.(interface{ Unwrap() []error })
		switch {
		case several:
			e.addFaults(verdict, joined.Unwrap()...)
		case errors.As(err, &fault):
			e.add(verdict, fault.Key+" ("+fault.Place+")", fault.Err.Error(), nextOfFault(fault))
		default:
			e.add(verdict, "configuration", err.Error(), "give a file that this user can read, in YAML as docs/agent-configuration.md has it")
		}
	}
}

// nextOfFault is what to do where a fault does not say it: those of the configuration
// itself do, those of the files that it names are often the system's.
func nextOfFault(fault *yamlfile.Fault) string {
	var system syscall.Errno
	switch {
	case errors.Is(fault, fs.ErrPermission):
		return "let the agent's user read the file"
	case errors.As(fault, &system):
		return "mend the path, or put the file there"
	case advises.MatchString(fault.Err.Error()):
		return ""
	}
	return "mend " + fault.Key + " as docs/agent-configuration.md describes it"
}

// advises finds a next step in a text, as they stand in those of faults: behind a
// colon.
var advises = regexp.MustCompile(`: (write|add|remove|did you mean|set|use|give|create|chmod|enable|docs/)`)

// examineSettings looks at the configuration itself, and at the keys and
// certificates that it names.
func (e *examination) examineSettings() {
	faults, warnings := e.agent.Check(), e.agent.Warnings()
	e.addFaults(checkFail, faults...)
	e.addFaults(checkWarn, warnings...)
	if len(faults)+len(warnings) == 0 {
		e.add(checkOK, "configuration "+e.options.agentConfig, "is in order", "")
	}
	for _, cert := range e.agent.Certificates() {
		if cert.Err == nil { // otherwise it is reported above
			e.examineExpiry("certificate "+cert.File, cert.Expires, "renew it, and put the new one in its place: it is read again at each handshake")
		}
	}
}

// examineExpiry finds certificates that are of no use for much longer.
func (e *examination) examineExpiry(check string, expires time.Time, next string) {
	left, notice := time.Until(expires), e.agent.Objectives.CertificateNotice
	switch {
	case left <= 0:
		e.add(checkFail, check, "has expired: "+when(expires), next)
	case left < notice.Std():
		e.add(checkWarn, check, fmt.Sprintf("expires %s, within objectives.certificate-notice (%s)", when(expires), notice), next)
	default:
		e.add(checkOK, check, "is valid until "+when(expires), "")
	}
}

// examineMembers looks at the cluster as the agent would meet it.
func (e *examination) examineMembers(ctx context.Context) {
	if !e.agent.HasCluster() {
		e.add(checkOK, "endpoints", "none are named: this agent talks to no cluster", "")
		return
	}
	cfg, err := e.agent.ClientConfig()
	if err != nil {
		return // it is reported already
	}
	client, err := client.Dial(ctx, cfg)
	if err != nil {
		e.failed("endpoints", err, "mend etcd.endpoints, the TLS files, or etcd.user and etcd.password-file in "+e.options.agentConfig)
		return
	}
	defer client.Close() //nolint:errcheck // nothing is under way any more
	e.examineCluster(ctx, client)
	e.examineServers(ctx, client)
	e.options.archivers = 1
	if e.survey != nil {
		e.options.archivers = max(1, len(e.survey.Membership))
	}
}

// examineAgentRepository looks at the place, and at what the jobs meet in it.
func (e *examination) examineAgentRepository(ctx context.Context) (err error) {
	sink, err := e.agent.OpenSink(ctx)
	if err != nil {
		e.failed("repository", err, "mend repository.url in "+e.options.agentConfig)
		return nil
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	if e.agent.Archiving() {
		e.examineSpool([]sinks.Sink{sink}, int64(e.agent.Archive.SpoolLimit))
	}
	if abilities, ok := e.examineRepository(ctx, sink); ok {
		e.examineWriter(sink, abilities)
		e.examineStored(ctx, sink)
	}
	return nil
}
