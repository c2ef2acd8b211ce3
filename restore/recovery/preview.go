package recovery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay"
)

// Preview is what would be done, as far as it is known. Its JSON form is
// stable.
type Preview struct {
	Cluster string `json:"cluster"`
	// Run is that of a recovery under way, empty where there is none; Reached is the
	// phase that it goes on with.
	Run     string `json:"run,omitempty"`
	Reached Phase  `json:"reached,omitempty"`

	Hosts  []HostState `json:"hosts"` // in the order of the cluster file
	Quorum Quorum      `json:"quorum"`
	// Findings are those of the members that are stopped, and of the repositories.
	Findings *sources.Findings `json:"findings"`
	// Plan is what would be done by them. Where Unsurveyed names hosts it is made
	// anew once these are stopped and read.
	Plan       *sources.Plan `json:"plan"`
	Unsurveyed []string      `json:"unsurveyed,omitempty"`
	// GivenUp are the archived writes that the plan leaves out; nil if it leaves out none.
	GivenUp *walreplay.GivenUp  `json:"given_up,omitempty"`
	Members []sources.NewMember `json:"members,omitempty"`
	// Left are hosts with old members that get no new one: their data is set aside as
	// well, so that nothing can start there.
	Left []string            `json:"left,omitempty"`
	Bump restore.BumpRequest `json:"bump"`
	// Host is this machine, if the members are built here, and Restore what an earlier run of the
	// same command has built here.
	Host    *restore.Readiness `json:"host,omitempty"`
	Restore *restore.Result    `json:"restore,omitempty"`
	// Build is what is to be built on this machine; nil if hosts do it.
	Build *restore.Request `json:"-"`
	// Blockers say, each with the next step, why Run would refuse; none where it
	// would not.
	Blockers []string `json:"blockers,omitempty"`
	// Unnamed says that naming members would end all blockers.
	Unnamed  bool     `json:"unnamed,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // beside those of Plan
	Next     []string `json:"next,omitempty"`     // steps for the operator once it is done

	unreadable string // why the backup that the plan begins from cannot be read
}

// HostState is one host of the cluster file.
type HostState struct {
	Member  string          `json:"member"`
	Address string          `json:"address"`
	Kind    supervisor.Kind `json:"kind,omitempty"`
	// Unreachable says why the host does not answer; empty where it does.
	Unreachable string `json:"unreachable,omitempty"`
	// Answers says that somebody does there, whom one cannot work with: requorum is not
	// there, or of another version, or the login is refused. The host is not gone.
	Answers bool `json:"answers,omitempty"`
	Stopped bool `json:"stopped"` // and that is proved
	Runs    bool `json:"runs"`
	// Unclear says why neither is known.
	Unclear string `json:"unclear,omitempty"`
	DataDir string `json:"data_dir,omitempty"`
	// Aside are the runs that set data aside there.
	Aside []string `json:"aside,omitempty"`
	// Faults say what on the host a recovery would fail for.
	Faults  []string           `json:"faults,omitempty"`
	Clients []host.ClientState `json:"clients,omitempty"`
	Dead    bool               `json:"declared_dead,omitempty"`
}

// Word says a host's state in a word or two.
func (h HostState) Word() string {
	switch {
	case h.Unreachable != "" && h.Dead:
		return "declared dead"
	case h.Answers:
		return "unusable"
	case h.Unreachable != "":
		return "unreachable"
	case h.Runs:
		return "runs"
	case h.Stopped:
		return "stopped"
	}
	return "unclear"
}

// Quorum is whether the cluster serves.
type Quorum struct {
	// Serves: a linearizable read was answered, by the member of this name.
	Serves    bool        `json:"serves"`
	By        string      `json:"by,omitempty"`
	ClusterID snapshot.ID `json:"cluster_id,omitzero"`
	Revision  int64       `json:"revision,omitempty"`
	// Members are those of the cluster that serves, by ID.
	Members map[snapshot.ID]string `json:"members,omitempty"`
	Asked   []string               `json:"asked"` // client URLs
	// Answered: a member said how it is, whether it serves or not.
	Answered bool `json:"answered"`
	// Unknown says why it is not known; empty where it is.
	Unknown string   `json:"unknown,omitempty"`
	Answers []string `json:"answers,omitempty"` // why there was none, by member
}

// inTheClear names a repository whose newest backup is encrypted, where nothing
// would be that a recovery stores; empty where there is none.
func (d *coordinator) inTheClear(p *Preview) string {
	if p.Findings == nil || len(d.cfg.Recipients)+len(d.cfg.RecipientsFiles) > 0 {
		return ""
	}
	for _, a := range p.Findings.Archives {
		if n := len(a.Fulls); n > 0 && a.Fulls[n-1].Encrypted {
			return a.Repository
		}
	}
	return ""
}

// clientURLs are all that are known: of the cluster file, of what a run decided, and
// of the members that were found.
func (d *coordinator) clientURLs(more []snapshot.Member) []string {
	var all []string
	add := func(urls []string) {
		for _, u := range urls {
			if !slices.Contains(all, u) {
				all = append(all, u)
			}
		}
	}
	for _, h := range d.cfg.Hosts {
		add(h.ClientURLs)
	}
	for _, k := range d.known {
		add(k.clientURLs())
		for _, m := range k.Plan.Members {
			add(m.ClientURLs)
		}
	}
	for _, m := range more {
		add(m.ClientURLs)
	}
	return all
}

// clientConfig reaches members as the cluster file says.
func (d *coordinator) clientConfig(endpoints []string) (client.Config, error) {
	e := d.cfg.Etcd
	c := client.Config{Endpoints: endpoints, CACert: e.CACert, Cert: e.Cert, Key: e.Key, User: e.User, Logger: d.logger}
	if e.PasswordFile != "" {
		var err error
		if c.Password, err = sinks.ReadSecret(e.PasswordFile); err != nil {
			return c, fmt.Errorf("the password of etcd's user: %w", err)
		}
	}
	return c, nil
}

// quorum asks whether the cluster serves, with a read that a quorum has to confirm.
func (d *coordinator) quorum(ctx context.Context, endpoints []string) (Quorum, error) {
	return d.quorumUnless(ctx, endpoints, d.cannotElect)
}

// cannotElect reports whether the hosts have proved that too few of a cluster's voters run
// to elect a leader.
func (d *coordinator) cannotElect(voters []string) bool {
	if d.decision != nil && d.decision.Built != nil {
		return false // new members are started by now
	}
	may := 0
	for _, name := range voters {
		if h := d.host(name); h == nil || !h.state.Stopped {
			may++
		}
	}
	return may < sources.Majority(len(voters))
}

// quorumUnless is quorum. cannotElect is asked before members that answer are given time to
// elect a leader; the voters are those that one of them names.
func (d *coordinator) quorumUnless(ctx context.Context, endpoints []string, cannotElect func(voters []string) bool) (Quorum, error) {
	q := Quorum{Asked: endpoints}
	if len(endpoints) == 0 {
		q.Unknown = "no client URL of a member is known: give client-urls in the cluster file, or --endpoints"
		return q, nil
	}
	cfg, err := d.clientConfig(endpoints)
	if err != nil {
		return q, err
	}
	// Members that answer may be electing a leader: they are given time for it. One
	// that is just ending resets connections, which looks as if it spoke otherwise.
	cfg.CommandTimeout = min(client.DefaultCommandTimeout, d.req.election)
	_ = d.mayElect() // from now on
	for {
		err = d.serves(ctx, cfg, &q, cannotElect)
		if err == nil || !q.Answered && !slices.ContainsFunc(reasons(err), unspoken) || errors.Is(err, errTooFew) || !d.mayElect() {
			break
		}
		d.reporter.waiting(PhasePreflight, fmt.Sprintf("members answer, and no quorum of them does: they may be electing a leader, and get %s for it", d.req.election))
		if err := pause(ctx, electionPause); err != nil {
			return q, err
		}
	}
	if err == nil || ctx.Err() != nil {
		return q, ctx.Err()
	}
	q.Answers = reasons(err)
	var mixed *client.MixedClustersError
	switch {
	case errors.As(err, &mixed):
		q.Unknown = err.Error()
	case errors.Is(err, client.ErrLogin), errors.Is(err, client.ErrPermission):
		q.Unknown = "a member answers, and asks who we are: give etcd.user and etcd.password-file, or etcd.cert, in the cluster file: " + err.Error()
	case slices.ContainsFunc(q.Answers, unspoken), anySpeaksTLS(ctx, endpoints):
		q.Unknown = "something answers that we cannot speak with, which may be a member that serves: look at etcd.cacert, etcd.cert and the client URLs in the cluster file: " + err.Error()
	}
	return q, nil
}

const (
	// electionTime is what members that answer are given to elect a leader before
	// their quorum is taken for lost. With usual election timeouts it takes them a
	// second or two.
	electionTime  = 10 * time.Second
	electionPause = 500 * time.Millisecond
	// tooFewTime is what a member is given for an answer if too few others run.
	tooFewTime = time.Second
)

var errTooFew = errors.New("too few run to elect a leader")

// mayElect reports whether members still have time to elect a leader. They get it
// once in a command, whatever is asked how often.
func (d *coordinator) mayElect() bool {
	if d.elected.IsZero() {
		d.elected = time.Now().Add(d.req.election)
	}
	return time.Now().Before(d.elected)
}

// serves asks without a login first: that goes through the log, and would only wait
// where there is no quorum.
func (d *coordinator) serves(ctx context.Context, cfg client.Config, q *Quorum, cannotElect func(voters []string) bool) error {
	anyone := cfg
	anyone.User, anyone.Password = "", ""
	err := d.barrier(ctx, anyone, q, cannotElect)
	if cfg.User != "" && (errors.Is(err, client.ErrLogin) || errors.Is(err, client.ErrPermission)) {
		return d.barrier(ctx, cfg, q, cannotElect)
	}
	return err
}

func (d *coordinator) barrier(ctx context.Context, cfg client.Config, q *Quorum, cannotElect func(voters []string) bool) error {
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is under way any more
	survey, err := c.Survey(ctx)
	if err != nil {
		return err
	}
	q.Answered = true
	var voters []string
	for _, m := range survey.Membership {
		if !m.IsLearner {
			voters = append(voters, m.Name)
		}
	}
	few := len(voters) > 0 && cannotElect(voters)
	if few { // it is asked all the same, but not for long
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, tooFewTime)
		defer cancel()
	}
	b, err := c.Barrier(ctx, survey)
	if err != nil && few {
		return fmt.Errorf("%w: of the voters %s", errTooFew, strings.Join(voters, ", "))
	}
	if err != nil {
		return err
	}
	q.Serves, q.By, q.ClusterID, q.Revision = true, b.Member.Name, snapshot.ID(survey.ClusterID), b.Revision
	if q.By == "" {
		q.By = b.Member.Endpoint
	}
	q.Members = map[snapshot.ID]string{}
	for _, m := range survey.Membership {
		q.Members[snapshot.ID(m.ID)] = m.Name
	}
	return nil
}

// reasons are the single ones of what was joined.
func reasons(err error) []string {
	var barrier *client.BarrierError
	if errors.As(err, &barrier) {
		var all []string
		for _, f := range barrier.Failures {
			all = append(all, f.Error())
		}
		return all
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, e.Error())
		}
		return all
	}
	return []string{err.Error()}
}

// unspoken reports whether a failure is no silence: somebody was there, and it is we
// who cannot speak with him. A member that waits for its quorum since its start is
// silent.
func unspoken(reason string) bool {
	return !strings.Contains(reason, "took too long") &&
		slices.ContainsFunc([]string{"TLS handshake", "tls:", "x509", "certificate", "does not speak TLS"}, func(s string) bool { return strings.Contains(reason, s) })
}

// anySpeaksTLS asks all at once: hosts that are off say nothing at all.
func anySpeaksTLS(ctx context.Context, endpoints []string) bool {
	var all sync.WaitGroup
	var some atomic.Bool
	for _, u := range endpoints {
		all.Go(func() {
			if speaksTLS(ctx, u) {
				some.Store(true)
			}
		})
	}
	all.Wait()
	return some.Load()
}

// speaksTLS reports whether at the address of a URL without TLS somebody speaks it.
func speaksTLS(ctx context.Context, endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, client.DefaultDialTimeout)
	defer cancel()
	// Only that it is TLS counts: nothing is sent, and nothing that is read believed.
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", u.Host) //nolint:gosec // as said
	if err != nil {
		return alerted(err)
	}
	_ = c.Close() // nothing was sent
	return true
}

// alerted reports whether an error is an alert of the other side, as crypto/tls gives it: somebody speaks
// TLS there, and not with us.
func alerted(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}

// replaceOne are the commands that replace a single member of a cluster that serves.
func (d *coordinator) replaceOne(q Quorum) []string {
	endpoint := "URL"
	if len(q.Asked) > 0 {
		endpoint = strings.Join(q.Asked, ",")
	}
	return []string{
		etcdctl(endpoint, "member", "list"),
		etcdctl(endpoint, "member", "remove", "ID-OF-THE-LOST-MEMBER"),
		etcdctl(endpoint, "member", "add", "NAME", "--learner", "--peer-urls", "https://HOST:2380"),
		"start etcd on that host, with an empty data directory, --initial-cluster-state existing and the --initial-cluster that was printed",
		etcdctl(endpoint, "member", "promote", "ID-OF-THE-NEW-MEMBER"),
	}
}
