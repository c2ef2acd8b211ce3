package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/archive"
)

type doctorOptions struct {
	conn       connFlags
	repo       repoFlags
	recipients recipientFlags

	dataDir, walDir string
	interval        time.Duration
	archivers       int
	spoolDir        string
	spoolLimit      string

	agentConfig   string
	controlConfig string
}

func (o *doctorOptions) addFlags(f *pflag.FlagSet) {
	o.repo.addFlags(f, true)
	o.repo.retryFor = doctorRetryFor
	f.Lookup("retry-for").DefValue = doctorRetryFor.String()
	o.conn.addFlags(f)
	f.StringVar(&o.dataDir, "data-dir", "", "also check this data directory `DIR` of a member on this host")
	f.StringVar(&o.walDir, "wal-dir", "", "the member's --wal-dir, where it has one of its own")
	f.DurationVar(&o.interval, "interval", 0, fmt.Sprintf("the archiving interval to reckon with (default %s to a folder, %s to S3)", diskInterval, archive.DefaultInterval))
	f.IntVar(&o.archivers, "archivers", 3, "how many archivers to reckon with: one beside each member")
	f.StringVar(&o.spoolDir, "spool-dir", "", "the archiver's --spool-dir")
	f.StringVar(&o.spoolLimit, "spool-limit", "2GiB", "the archiver's --spool-limit")
	o.recipients.addFlags(f)
	f.StringVar(&o.agentConfig, "agent-config", "", "try all that this `file` names, the configuration of 'requorum agent', in place of the options here")
	f.StringVar(&o.controlConfig, "control-config", "", "also try all that this `file` names, the configuration of 'requorum agent control' (default: control.yaml beside --agent-config, where there is one)")
}

func newDoctorCommand(g *globals) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [--repo URL] [--endpoints URL,…] [--data-dir DIR] | --agent-config FILE | --control-config FILE",
		Short: "Check that backing up and archiving would work, and what they would cost",
		Long: `Check what 'requorum backup' and 'requorum archive' would meet: the endpoints and
their versions, the rights in etcd, the member's log files, the repository and
each right in it, the clocks, the room for the spool. Then the requests a day and
their price for the chosen interval.

With --agent-config it tries all that the configuration of 'requorum agent' names
instead: also certificates, keys, companions, the port, the URLs that are pinged
(nothing is sent there), room for the jobs, and whether retention promises what
the schedules can give. With --control-config, or where control.yaml lies beside that
file, also what lets 'requorum recover' control this host's member.

Nothing is changed, but for a scratch object in each repository and a scratch
file in the folders of the agent, which are deleted again. Checks for which nothing
was given are left out. Status 1 says that something would fail.
` + exitHelp,
		Example: `  requorum doctor --endpoints http://127.0.0.1:2379 --data-dir /var/lib/etcd \
      --repo 's3://backups/etcd?region=eu-central-1'
  requorum doctor --agent-config /etc/requorum/agent.yaml`,
		Args: cobra.NoArgs,
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
	survey  *store.Survey // nil where no member answers
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
	other := func(name string) bool { return !fitsAgentConfig[name] }
	if o.controlConfig != "" && !slices.ContainsFunc(g.typed, other) {
		e := &examination{globals: g, options: o}
		e.report.Costs = []costReport{}
		e.examineControl(ctx)
		return e.print()
	}
	if o.archivers < 1 || o.conn.flags.Changed("interval") && o.interval < time.Millisecond {
		return usageError{errors.New("--archivers and --interval: want more than 0")}
	}
	limit, err := parseSize("spool-limit", o.spoolLimit)
	if err != nil {
		return err
	}
	recipients, err := o.recipients.parse()
	if err != nil {
		return err
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
	e.examineCluster(ctx, client, len(recipients) > 0)
	if o.dataDir != "" || o.walDir != "" {
		e.examineMember()
		e.examineSpool(all, limit)
	}
	for _, s := range all {
		e.examineRepository(ctx, s)
	}
	e.examineControl(ctx)
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
	} else if err := e.table(); err != nil {
		return err
	}
	if !e.report.OK {
		return errors.Join(errReported, errors.New("something would fail"))
	}
	return nil
}

func (e *examination) table() error {
	for _, c := range e.report.Checks {
		fmt.Fprintf(e.stdout, "%-8s %s: %s\n", c.Verdict, c.Check, c.Text)
		if c.Next != "" {
			fmt.Fprintf(e.stdout, "         → %s\n", c.Next)
		}
	}
	for _, c := range e.report.Costs {
		if err := e.printCost(c); err != nil {
			return err
		}
	}
	return nil
}
