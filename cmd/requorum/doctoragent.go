package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"syscall"
	"time"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store"
)

// fitsAgentConfig are the options that do not contradict --agent-config.
var fitsAgentConfig = map[string]bool{"agent-config": true, "control-config": true, "config": true, "output": true, "progress": true, "verbose": true}

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
		e.examineControl(ctx)
		return e.print()
	}
	c.Logger = g.logger()
	c.Repository.RetryFor = min(c.Repository.RetryFor, config.Duration(doctorRetryFor))
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
	e.examineURLs(ctx)
	e.examineControl(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.print()
}

// addFaults adds each of the faults, also of those that were joined.
func (e *examination) addFaults(verdict string, all ...error) {
	for _, err := range all {
		var fault *config.Fault
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
func nextOfFault(fault *config.Fault) string {
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
		if cert.Err == nil { // otherwise it is told above
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
		return // it is told already
	}
	client, err := store.Dial(ctx, cfg)
	if err != nil {
		e.failed("endpoints", err, "mend etcd.endpoints, the TLS files, or etcd.user and etcd.password-file in "+e.options.agentConfig)
		return
	}
	defer client.Close() //nolint:errcheck // nothing is under way any more
	e.examineCluster(ctx, client, e.agent.Encrypted())
	e.examineServers(ctx, client, cfg)
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
