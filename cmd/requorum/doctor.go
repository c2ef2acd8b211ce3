package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/walreplay"
)

type doctorOptions struct {
	conn            connFlags
	repo            repoFlags
	dataDir, walDir string
	agentConfig     string
}

func (o *doctorOptions) addFlags(f *pflag.FlagSet) {
	o.repo.addFlags(f, true)
	o.repo.retryFor = doctorRetryFor
	f.Lookup("retry-for").DefValue = doctorRetryFor.String()
	o.conn.addFlags(f)
	f.StringVar(&o.dataDir, "data-dir", "", "also check this data directory `DIR` of a member on this host")
	f.StringVar(&o.walDir, "wal-dir", "", "the member's --wal-dir, if it has one")
	f.StringVar(&o.agentConfig, "agent-config", "", "check everything in this `file`, the configuration of 'requorum agent', instead of the options")
}

func newDoctorCommand(g *globals) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [--repo URL] [--endpoints URL,…] [--data-dir DIR] | --agent-config FILE",
		Short: "Check that backing up and archiving would work",
		Long: `Check what a backup and the archive need: endpoints, quorum, the right to take
snapshots, the member's files and flags, its quota and an upgrade to 3.6, the
repository, and the clocks. With --agent-config also everything else in that file:
certificates, keys, attachments, the port, the heartbeat's host (nothing is sent
there), and room for the spool and the jobs.

A scratch object in each repository and a scratch file in each directory of the agent
are written and deleted; nothing else is changed. Status 1 means that something would
fail.`,
		Example: `  requorum doctor --endpoints http://127.0.0.1:2379 --data-dir /var/lib/etcd \
      --repo 's3://backups/etcd?region=eu-central-1'
  requorum doctor --agent-config /etc/requorum/agent.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.doctor(cmd.Context(), &o) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// doctorRetryFor is how long requests to an unreachable repository are retried: doctor
// reports how things are now. doctorPatience bounds a first answer.
const (
	doctorRetryFor = time.Second
	doctorPatience = 8 * time.Second
)

// Statuses of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning" // works, and is worth knowing
	checkProblem = "problem" // backing up or archiving would fail
)

// checkReport is the result of one check.
type checkReport struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning, problem
	Text   string `json:"text"`
	Next   string `json:"next,omitempty"` // what to do
}

// doctorReport is the JSON form of `requorum doctor`.
type doctorReport struct {
	OK     bool          `json:"ok"` // there is no problem
	Checks []checkReport `json:"checks"`
}

// examination is one run of the command.
type examination struct {
	*globals
	dataDir, walDir string         // of the member; both may be empty
	agent           *config.Config // nil without --agent-config
	survey          *client.Survey // nil if no member answers
	newest          int64          // size of the newest full snapshot's database; 0 if there is none
	report          doctorReport
}

func (e *examination) add(status, check, text, next string) {
	e.report.Checks = append(e.report.Checks, checkReport{check, status, text, next})
}

// result adds a problem for an error, and else that all is well; it reports which.
func (e *examination) result(check string, err error, next, well string) bool {
	if err != nil {
		e.add(checkProblem, check, err.Error(), next)
	} else {
		e.add(checkOK, check, well, "")
	}
	return err == nil
}

func (g *globals) doctor(ctx context.Context, o *doctorOptions) error {
	e := &examination{globals: g, dataDir: o.dataDir, walDir: o.walDir}
	if err := cmp.Or(e.check(ctx, o), ctx.Err()); err != nil {
		return err
	}
	return e.print()
}

func (e *examination) print() error {
	e.report.OK = !slices.ContainsFunc(e.report.Checks, func(c checkReport) bool { return c.Status == checkProblem })
	var err error
	if e.output == "json" {
		err = e.printJSON(e.report)
	} else {
		for _, c := range e.report.Checks {
			e.printf("%-8s %s: %s\n", c.Status, c.Check, oneLine(strings.TrimSuffix(c.Text+"; "+c.Next, "; ")))
		}
	}
	if err == nil && !e.report.OK {
		err = errReported
	}
	return err
}

// check checks what the options name, or the agent's configuration.
func (e *examination) check(ctx context.Context, o *doctorOptions) (err error) {
	if o.agentConfig != "" {
		return e.checkAgent(ctx, o.agentConfig)
	}
	var all []sinks.Sink
	if len(o.repo.urls) > 0 {
		if all, err = o.repo.openSinks(ctx, e.globals); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeSinks(all)) }()
	}
	cfg, err := o.conn.config(e.globals)
	if err != nil {
		return err
	}
	e.checkCluster(ctx, cfg)
	e.checkMember(ctx)
	for _, s := range all {
		e.checkRepository(ctx, s)
	}
	return nil
}

// checkAgent checks everything that an agent's configuration names.
func (e *examination) checkAgent(ctx context.Context, file string) (err error) {
	for _, name := range e.typed {
		if !slices.Contains([]string{"agent-config", "output", "progress", "verbose"}, name) {
			return usageError{fmt.Errorf("--%s is of no use with --agent-config: write it to that file", name)}
		}
	}
	c, err := config.ReadWith(file, e.getenv)
	if err != nil {
		e.addFaults(checkProblem, err)
		return nil
	}
	c.Logger = e.logger()
	c.Repository.RetryFor = min(c.Repository.RetryFor, yamlfile.Duration(doctorRetryFor))
	e.agent, e.dataDir, e.walDir = c, c.Member.DataDir, c.Member.WALDir
	faults := c.Check()
	e.addFaults(checkProblem, faults...)
	e.addFaults(checkWarning, c.Warnings()...)
	if len(faults) == 0 {
		e.add(checkOK, "configuration", file+" is valid", "")
	}
	for _, cert := range c.Certificates() {
		if cert.Err == nil { // otherwise it is a fault already
			e.checkExpiry("certificate "+cert.File, cert.Expires)
		}
	}
	if cfg, err := c.ClientConfig(); err == nil && c.HasCluster() {
		e.checkCluster(ctx, cfg)
	}
	e.checkMember(ctx)
	if c.Archiving() {
		e.checkRoom(checkWarning, "archive.spool-dir", existing(c.Archive.SpoolDir), int64(c.Archive.SpoolLimit)) // the agent makes it
	}
	e.checkAttachments(ctx)
	e.checkPort(ctx)
	e.checkHeartbeat(ctx)
	sink, err := c.OpenSink(ctx)
	if err != nil {
		e.result("repository", err, "correct repository.url in "+file, "")
		return nil
	}
	e.checkRepository(ctx, sink)
	if need := c.ScratchNeed(max(e.newest, 1)); need > 0 {
		e.checkRoom(checkProblem, "resources.scratch-dir", c.Resources.ScratchDir, need)
	}
	return sink.Close()
}

// addFaults adds each fault of a configuration, also if they are joined.
func (e *examination) addFaults(status string, all ...error) {
	for _, err := range all {
		if joined, is := err.(interface{ Unwrap() []error }); is {
			e.addFaults(status, joined.Unwrap()...)
			continue
		}
		e.add(status, "configuration", err.Error(), "docs/agent-configuration.md has all keys")
	}
}

// checkExpiry checks that a certificate does not expire soon.
func (e *examination) checkExpiry(check string, expires time.Time) {
	status, next := checkOK, ""
	if left := time.Until(expires); left <= 0 {
		status, next = checkProblem, "it has expired: renew it"
	} else if left < e.agent.Objectives.CertificateNotice.Std() {
		status, next = checkWarning, "renew it"
	}
	e.add(status, check, "is valid until "+when(expires), next)
}

// checkCluster does what a backup does before it reads a member: it asks all members,
// confirms a quorum, and opens a snapshot stream.
func (e *examination) checkCluster(ctx context.Context, cfg client.Config) {
	const endpoints = "name the members' client URLs (--endpoints, etcd.endpoints), and what TLS and users need"
	cli, err := client.Dial(ctx, cfg)
	if err != nil {
		e.result("endpoints", err, endpoints, "")
		return
	}
	defer cli.Close() //nolint:errcheck // no request is under way
	survey, err := cli.Survey(ctx)
	if !e.result("endpoints", err, endpoints, fmt.Sprintf("lead to cluster %016x", survey.ClusterID)) {
		return
	}
	e.survey = &survey
	e.checkMembers(survey)
	barrier, err := cli.Barrier(ctx, survey)
	serves := e.result("quorum", err, "a backup needs a quorum; without one, restore from a member's data directory or the repository",
		fmt.Sprintf("confirmed raft index %d, revision %d", barrier.Index, barrier.Revision))
	if serves && (e.agent == nil || e.agent.Jobs.Full.Runs()) {
		e.result("snapshot", openSnapshot(ctx, cli, cli.Candidates(survey, barrier)),
			"with authentication on, etcd gives snapshots only to users with the root role; the archive works with any user", "a member gives one")
	}
	if e.agent == nil {
		return
	}
	for _, cert := range cli.ServerCertificates(ctx) {
		if cert.Err == nil { // otherwise the endpoint does not answer, which is a warning already
			e.checkExpiry("certificate of "+cert.Endpoint, cert.Expires)
		}
	}
}

// checkMembers checks the versions of the members, and that each has an endpoint.
func (e *examination) checkMembers(survey client.Survey) {
	var answer []uint64
	for _, m := range survey.Members {
		if m.Err != nil {
			e.add(checkWarning, m.String(), m.Err.Error(), "check this member; backups use the others")
			continue
		}
		answer = append(answer, m.MemberID)
		e.checkVersion(m)
		for _, text := range m.Warnings() {
			e.add(checkWarning, m.String(), text, "see etcd's page on maintenance")
		}
	}
	for _, m := range survey.Membership {
		if !slices.Contains(answer, m.ID) {
			e.add(checkWarning, fmt.Sprintf("member %s (%x)", m.Name, m.ID), "no endpoint leads to it", "name all members' client URLs (--endpoints, etcd.endpoints)")
		}
	}
}

// checkVersion checks that requorum knows the member's version of etcd.
func (e *examination) checkVersion(m client.MemberStatus) {
	var minor int
	_, err := fmt.Sscanf(m.Version, "3.%d.", &minor)
	if err != nil || minor < 5 || minor > 7 {
		e.add(checkProblem, m.String(), "etcd "+m.Version, "requorum works with etcd 3.5 to 3.7: upgrade the member, or use another version of requorum")
		return
	}
	e.add(checkOK, m.String(), fmt.Sprintf("etcd %s, database %s", m.Version, size(m.DBSize)), "")
}

// openSnapshot opens a snapshot stream of the member that a backup would read, and closes
// it at once: nothing else shows whether etcd allows it.
func openSnapshot(ctx context.Context, cli *client.Client, candidates []client.MemberStatus) error {
	if len(candidates) == 0 {
		return errors.New("no member that answers has caught up")
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	stream, err := cli.Stream(ctx, candidates[0])
	if err != nil {
		return err
	}
	return stream.Close()
}

// checkMember checks that the member's files can be read, without changing or locking
// any, and that it is a member of the cluster that answers.
func (e *examination) checkMember(ctx context.Context) {
	if e.dataDir == "" && e.walDir == "" {
		return
	}
	check := "log " + cmp.Or(e.walDir, filepath.Join(e.dataDir, "member", "wal"))
	member, err := walreplay.LocalMember(e.dataDir, e.walDir)
	if err != nil {
		e.result(check, err, "name the member's own directory (--data-dir and --wal-dir, member.data-dir and member.wal-dir), and let this user read it (docs/agent.md)", "")
		return
	}
	whose := fmt.Sprintf("is of member %x of cluster %016x", member.MemberID, member.ClusterID)
	switch {
	case e.survey == nil:
		e.add(checkWarning, check, whose+"; no member answers to compare it with", "")
	case e.survey.ClusterID != member.ClusterID:
		e.add(checkProblem, check, fmt.Sprintf("%s, and the endpoints are of cluster %016x", whose, e.survey.ClusterID), "name the data directory and the endpoints of one cluster")
	case !slices.ContainsFunc(e.survey.Members, func(m client.MemberStatus) bool { return m.MemberID == member.MemberID }):
		e.add(checkProblem, check, whose+", and no endpoint leads to it", "name the client URL of the member itself, not of a load balancer")
	default:
		e.add(checkOK, check, whose+", which answers", "")
	}
	if e.dataDir != "" {
		e.result("database "+member.Database, readable(member.Database), "let this user read it, and check its disk", "can be read")
		for _, text := range append(member.Warnings(ctx), supervisor.Warnings(e.dataDir, e.walDir)...) {
			e.add(checkWarning, "database "+member.Database, text, "")
		}
	}
}

// readable reads the first byte of a file.
func readable(path string) error {
	f, err := safedir.Open(path) // not a pipe that never ends, and not a device
	if err != nil {
		return err
	}
	_, err = f.ReadAt(make([]byte, 1), 0)
	return errors.Join(err, f.Close())
}

// checkRoom writes a scratch file to a directory, and compares its free space with need;
// status is that of a lack of room.
func (e *examination) checkRoom(status, key, dir string, need int64) {
	next := "give it to the agent's user, or write a directory with more room to " + key
	f, err := os.CreateTemp(dir, ".requorum-doctor-*")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if free, known, freeErr := safedir.Free(dir); err == nil && freeErr == nil && known && free < need {
		e.add(status, key, fmt.Sprintf("%s has %s free, and may need %s", dir, size(free), size(need)), next)
		return
	}
	e.result(key, err, next, fmt.Sprintf("%s can be written, and has the %s that it may need", dir, size(need)))
}

// nextOfPlace returns what to do about an error of a repository.
func nextOfPlace(err error) string {
	if errors.Is(err, sinks.ErrDenied) {
		return "allow it: docs/s3.md has the rights in a bucket; a directory must belong to the user"
	}
	return "correct --repo or repository.url, or make sure that the directory or bucket exists and can be reached from this host"
}

// checkRepository checks that a repository answers, belongs to the cluster, and takes and
// gives back an object.
func (e *examination) checkRepository(ctx context.Context, s sinks.Sink) {
	place := s.String()
	first, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	abilities, err := s.Abilities(first)
	var repo *repository.Repository
	if err == nil {
		repo, err = repository.Open(first, s)
	}
	if err != nil && !errors.Is(err, repository.ErrNoRepository) { // the first backup makes one
		e.result(place, err, nextOfPlace(err), "")
		return
	}
	for _, note := range abilities.Notes {
		e.add(checkWarning, place, note, "")
	}
	if e.survey != nil {
		e.checkLineage(first, s)
	}
	probed, err := sinks.Probe(ctx, s)
	if !e.result(place, err, nextOfPlace(err), "can be written, read and listed") {
		return
	}
	if probed.ClockOff != 0 {
		e.add(checkWarning, place, fmt.Sprintf("this host's clock and the repository's differ by %s", probed.ClockOff.Abs()), "set the clock (NTP): restore --at goes by it")
	}
	e.checkDeleting(place, probed.Kept)
	if status := checkWarning; !abilities.ExclusiveCreate {
		if e.agent != nil && !e.agent.Repository.Alone() {
			status = checkProblem
		}
		e.add(status, place, "of two writers of one name the later would overwrite the other's log", "use a server with conditional puts, or promise with repository.lease: off that only this agent uses the repository")
	}
	if repo != nil && e.agent != nil {
		e.checkNewest(ctx, repo)
	}
}

// checkLineage finds a repository of another cluster: backups of this one are refused
// there.
func (e *examination) checkLineage(ctx context.Context, s sinks.Sink) {
	req := snapshot.Request{Sink: s}
	if t, restored := restore.Origin(e.dataDir, e.survey.ClusterID); restored && e.dataDir != "" {
		req.Parent = t.Parent
	}
	if err := req.CheckLineage(ctx, *e.survey); errors.Is(err, snapshot.ErrOtherLineage) {
		e.result(s.String(), err, "name this cluster's own repository", "")
	}
}

// checkDeleting judges why the scratch object was not deleted. Only prune and merge
// delete, so that the other keys need no right to.
func (e *examination) checkDeleting(place string, kept error) {
	const next = "allow deleting (docs/s3.md), or turn the jobs prune and merge off here and run them elsewhere"
	switch {
	case kept == nil, errors.Is(kept, sinks.ErrLocked): // the latter is among the notes
	case e.agent == nil:
		e.add(checkWarning, place, kept.Error(), next)
	case e.agent.Jobs.Prune.Runs(), e.agent.Jobs.Merge.Runs():
		e.add(checkProblem, place, kept.Error(), next)
	}
}

// checkNewest checks that the agent's keys fit the newest full snapshot.
func (e *examination) checkNewest(ctx context.Context, repo *repository.Repository) {
	newest, err := newestFull(ctx, repo)
	if newest == nil {
		e.result(repo.String(), err, nextOfPlace(err), "has no full snapshot yet")
		return
	}
	e.newest = newest.Object.RawSize
	if e.agent.HasCluster() && !e.agent.Encrypted() && newest.Object.Encrypted() {
		e.result("encryption.recipients", snapshot.CheckPlain(ctx, repo, newest.Timeline), "set encryption.recipients as the other writers have it", "")
	}
	reads := slices.ContainsFunc(e.agent.Jobs.All(), func(j config.NamedTiming) bool { return j.Reads && j.Timing.Runs() })
	if identities, err := e.agent.Identities(); err == nil && reads && newest.Object.Encrypted() {
		_, err := snapshot.OpenStored(repo, newest, identities...).ReaderAt(ctx)
		e.result("full snapshot "+newest.ID, err, "add an identity that opens it to encryption.identity-files, or run the jobs that read it on a verifier that has one", "opens with encryption.identity-files")
	}
}

// newestFull returns the full snapshot that was taken last; nil if there is none. It reads
// only the last manifests of each timeline.
func newestFull(ctx context.Context, repo *repository.Repository) (newest *snapshot.Manifest, err error) {
	timelines, err := repo.TimelineIDs(ctx)
	for _, t := range timelines {
		recent, err := snapshot.RecentStates(ctx, repo, t)
		if err != nil {
			return nil, err
		}
		for _, m := range recent {
			if newest == nil || m.Started.After(newest.Started) {
				newest = m
			}
		}
	}
	return newest, err
}

// checkAttachments reads all attachments, as a full snapshot does.
func (e *examination) checkAttachments(ctx context.Context) {
	if len(e.agent.Attachments) == 0 {
		return
	}
	_, err := job.PackAttachments(ctx, e.agent.Attachments)
	e.result("attachments", err, "correct the path in attachments, or let the agent's user read it", "all of them can be read")
}

// checkPort listens for a moment where the agent would. If that agent runs already, it
// cannot, so this is only a warning.
func (e *examination) checkPort(ctx context.Context) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.agent.Listen.Address)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		e.add(checkWarning, "listen.address", err.Error(), "unless it is this agent that listens there, end the other program (ss -ltnp shows it), or write another port of this host")
		return
	}
	e.add(checkOK, "listen.address", e.agent.Listen.Address+" is free", "")
}

// checkHeartbeat connects to the host that the agent pings, and sends nothing: a ping would
// report that all is well. The URL is a secret, its host is not.
func (e *examination) checkHeartbeat(ctx context.Context) {
	raw, err := e.agent.HeartbeatURL()
	target, parseErr := url.Parse(raw)
	if err != nil || parseErr != nil || raw == "" {
		return // a fault already, or not wanted
	}
	address := net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), map[string]string{"http": "80", "https": "443"}[target.Scheme]))
	conn, err := (&net.Dialer{Timeout: doctorPatience}).DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	e.result("heartbeat", err, "correct heartbeat.url or heartbeat.url-file, or let this host connect there", address+" can be reached; nothing was sent")
}
