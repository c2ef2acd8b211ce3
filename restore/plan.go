// Package restore builds the data directories of a new etcd cluster from one
// database image: a stored full snapshot, a file of `etcdctl snapshot save`,
// or a member's bare db file.
//
// It promises:
//
//  1. Nothing that a member would start from exists until all members of this
//     host are on disk and synced, however the run ends. Everything is built in
//     a folder aside; what is renamed to its place holds a WAL file that every
//     etcd refuses (the blocker), until the last member is in place.
//  2. No moment exists in which a member finds a data directory without a WAL,
//     from which it would bootstrap an empty cluster.
//  3. Nothing of the user's is deleted or overwritten. An existing directory is
//     refused, or set aside whole, in the same mount.
//  4. The same plan gives the same cluster on every host: token, IDs, revision.
//  5. A run that was killed needs no cleaning: the next one with the same
//     request completes it or starts anew.
//  6. Clients that remember a later revision get "compacted" instead of
//     waiting in silence: the revision is bumped when a restore goes back.
//
// It is owed: members that are stopped while their directories are replaced
// (a running one is noticed by its locks and refused), and an Image whose Open
// returns io.EOF only when all checks passed.
//
// The steps: NewPlan decides everything and touches nothing, Plan.Check looks
// at this host, Execute builds and publishes. A plan may also be of one plain
// snapshot file, without members.
package restore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/snapshot"
)

// PlanFormat is the number of the plan's JSON format. A reader refuses a number
// that it does not know.
const PlanFormat = 1

// Plan is everything that was decided about a restore: pure data, the same on
// every host. Its JSON form is stable, and ends with its own checksum: see
// MarshalJSON.
type Plan struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"` // random, names this plan in files and messages
	CreatedAt time.Time `json:"created_at"`
	Source    Source    `json:"source"`

	// Path is the snapshot file that is written; empty where members are built. Of such
	// a file nothing is planned that is about members.
	Path string `json:"path,omitempty"`

	ClusterToken string      `json:"cluster_token,omitempty"`
	ClusterID    snapshot.ID `json:"cluster_id,omitzero"`
	Members      []Member    `json:"members,omitempty"` // by name

	// SetAside allows every host to move an existing directory's content aside,
	// and Owner is for all of them; ExecOptions have both for one host.
	SetAside bool   `json:"set_aside"`
	Owner    *Owner `json:"owner,omitempty"`
	Engine   string `json:"engine,omitempty"`

	// Bump is nil when the revision stays as it is.
	Bump *Bump `json:"bump,omitempty"`
	// AuthOff turns authentication off, whether or not it is on in the image.
	AuthOff bool `json:"auth_off,omitempty"`
	// ClearAlarms are the alarms of the image that the result will not have.
	ClearAlarms []snapshot.Alarm `json:"clear_alarms,omitempty"`

	// OldestTarget is the oldest etcd, such as "3.6", that can start the result;
	// TargetVersion the one that was asked for.
	OldestTarget  string `json:"oldest_target"`
	TargetVersion string `json:"target_version,omitempty"`

	// BytesDB and BytesWAL are what one member takes on disk while it is built, Bytes
	// what a snapshot file takes.
	BytesDB  int64 `json:"bytes_db,omitempty"`
	BytesWAL int64 `json:"bytes_wal,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"`

	// Notes are sentences for the user.
	Notes []string `json:"notes,omitempty"`

	// Recovery is the decision of the recovery that made this plan, in the form of package
	// recovery; empty for a restore. It stays with the members, and so the same command knows
	// its own work.
	Recovery json.RawMessage `json:"recovery,omitempty"`
}

// Member is one member of the new cluster.
type Member struct {
	Name     string      `json:"name"`
	ID       snapshot.ID `json:"id"`
	PeerURLs []string    `json:"peer_urls"`
	Learner  bool        `json:"learner,omitempty"`
	DataDir  string      `json:"data_dir"`
	WALDir   string      `json:"wal_dir,omitempty"` // empty: inside the data directory
}

// NewPlan decides everything that a restore needs, and touches no directory.
func NewPlan(ctx context.Context, req Request) (*Plan, error) {
	if err := req.check(); err != nil {
		return nil, &RequestError{err}
	}
	p := &Plan{
		Format:        PlanFormat,
		ID:            randomID(),
		CreatedAt:     time.Now().UTC().Truncate(time.Second),
		Owner:         req.Owner,
		TargetVersion: req.TargetVersion,
		AuthOff:       req.AuthOff,
	}
	var err error
	if req.Path != "" {
		p.Path, err = filepath.Abs(req.Path)
	} else {
		err = p.planMembers(req)
	}
	if err != nil {
		return nil, &RequestError{err}
	}
	facts, err := req.Image.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore: look into %s: %w", req.Image.Name(), err)
	}
	p.Source, p.ClearAlarms = sourceOf(req.Image, req.Repository, req.BackupID, facts), facts.Alarms
	p.Source.Target, p.Source.Timeline = req.Target, req.Timeline
	if p.OldestTarget, err = planTarget(req.TargetVersion, facts); err != nil {
		return nil, err
	}
	highest := req.HighestKnownRevision
	if p.Path != "" && req.Bump.Mode == BumpOff {
		highest = 0 // a file serves nobody yet: here an older state is to be had as it was
	}
	var notes []string
	if p.Bump, notes, err = planBump(req.Bump, facts, highest); err != nil {
		return nil, err
	}
	p.Notes = slices.Concat(memberNotes(p.Members), imageNotes(p.Source, p.OldestTarget, p.ClearAlarms, p.AuthOff), req.Notes, notes)
	if p.Path != "" {
		p.Bytes = p.Source.Size + editBytes
		if p.Bump != nil {
			p.Notes = append(p.Notes, "the bump and the compaction mark are inside the file: restore it without asking for another bump")
		}
		return p, nil
	}
	p.BytesDB = p.Source.Size + editBytes
	if p.Engine == EngineEtcdutl {
		if err := etcdutlCan(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// planMembers decides all that does not depend on the image.
func (p *Plan) planMembers(req Request) error {
	p.ClusterToken = cmp.Or(req.ClusterToken, "requorum-"+randomID())
	p.SetAside, p.Engine, p.BytesWAL = req.SetAside, cmp.Or(req.Engine, EngineRequorum), walBytes()
	cluster, err := newCluster(req.InitialCluster, p.ClusterToken, req.Learners)
	if err != nil {
		return err
	}
	p.ClusterID = snapshot.ID(cluster.ID())
	for _, m := range cluster.Members() {
		dir, err := expand(req.DataDir, m.Name)
		if err != nil {
			return err
		}
		wal := ""
		if req.WALDir != "" {
			if wal, err = expand(req.WALDir, m.Name); err != nil {
				return err
			}
		}
		p.Members = append(p.Members, Member{
			Name: m.Name, ID: snapshot.ID(m.ID), PeerURLs: m.PeerURLs, Learner: m.IsLearner, DataDir: dir, WALDir: wal,
		})
	}
	slices.SortFunc(p.Members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	_, err = p.local(req.Only)
	return err
}

// expand puts a member's name into a path. A name is a path's part then, so it
// must be a plain one.
func expand(template, name string) (string, error) {
	if strings.Contains(template, "{name}") && (name == "." || name == ".." || strings.ContainsAny(name, "/\x00")) {
		return "", fmt.Errorf("restore: the member name %q cannot be part of the path %s", name, template)
	}
	path, err := filepath.Abs(strings.ReplaceAll(template, "{name}", name))
	if err != nil {
		return "", fmt.Errorf("restore: path %s of member %s: %w", template, name, err)
	}
	return path, nil
}

// InitialCluster is the value for etcd's --initial-cluster flag.
func (p *Plan) InitialCluster() string {
	var parts []string
	for _, m := range p.Members {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

func (p *Plan) member(name string) *Member {
	for i := range p.Members {
		if p.Members[i].Name == name {
			return &p.Members[i]
		}
	}
	return nil
}

// local are the members that this host builds: all, or the one named.
func (p *Plan) local(only string) ([]Member, error) {
	if only == "" {
		return p.Members, nil
	}
	m := p.member(only)
	if m == nil {
		return nil, badRequest("restore: %s is no member of the planned cluster %s: give --name with one of its names", only, p.InitialCluster())
	}
	return []Member{*m}, nil
}

// NeedsOnly reports whether members share a directory, so that each host builds
// one of them, which ExecOptions.Only names.
func (p *Plan) NeedsOnly() bool { return p.sharedDir() != "" }

// sharedDir is a directory that two members have in common; empty when none is.
func (p *Plan) sharedDir() string {
	data, wal := map[string]bool{}, map[string]bool{}
	for _, m := range p.Members {
		if data[m.DataDir] {
			return m.DataDir
		}
		if wal[m.WALDir] {
			return m.WALDir
		}
		data[m.DataDir], wal[m.WALDir] = true, m.WALDir != ""
	}
	return ""
}

// onHost is the plan as it is carried out with a host's own options.
func (p *Plan) onHost(opts ExecOptions) *Plan {
	c := *p
	c.SetAside = p.SetAside || opts.SetAside
	if opts.Owner != nil {
		c.Owner = opts.Owner
	}
	return &c
}

// MarshalJSON writes the plan with a last field "sha256": the SHA-256, in hex, of
// the same JSON without that field, its keys sorted, without spaces. It shows
// that a plan was edited or cut, not who wrote it.
func (p *Plan) MarshalJSON() ([]byte, error) {
	type fields Plan // without this method
	data, err := json.Marshal((*fields)(p))
	if err != nil {
		return nil, err
	}
	sum, err := planSum(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		*fields
		SHA256 string `json:"sha256"`
	}{(*fields)(p), sum})
}

// planSum is the checksum of a plan's JSON, however it is laid out, and also
// when it comes from a version with other fields.
func planSum(data []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		return "", err
	}
	delete(all, "sha256")
	var canonical bytes.Buffer
	enc := json.NewEncoder(&canonical)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(all); err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.TrimSuffix(canonical.Bytes(), []byte("\n")))
	return hex.EncodeToString(sum[:]), nil
}

// Marshal writes the plan as JSON, for a file that other hosts read.
func (p *Plan) Marshal() ([]byte, error) {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("restore: write plan %s: %w", p.ID, err)
	}
	return append(b, '\n'), nil
}

// ParsePlan reads what Marshal wrote. Unknown fields and formats, a plan that was
// altered since, and IDs that do not follow from the token and the URLs, are
// refused: half of a plan would be another cluster.
func ParsePlan(data []byte) (*Plan, error) {
	var file struct {
		Plan
		SHA256 string `json:"sha256"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("restore: read the plan: %w", err)
	}
	p := &file.Plan
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("restore: plan %s was altered: something follows its end: write it anew", p.ID)
	}
	if p.Format != PlanFormat {
		return nil, fmt.Errorf("restore: plan %s has the format %d, this program reads %d: use the version that wrote it", p.ID, p.Format, PlanFormat)
	}
	sum, err := planSum(data)
	if err != nil {
		return nil, fmt.Errorf("restore: read plan %s: %w", p.ID, err)
	}
	if sum != file.SHA256 {
		return nil, fmt.Errorf("restore: plan %s was altered: its SHA-256 is %s, it says %q: use the file as it was written, or write a new plan", p.ID, sum, file.SHA256)
	}
	if p.Path != "" {
		return nil, fmt.Errorf("restore: plan %s is of a snapshot file, %s: want one of members", p.ID, p.Path)
	}
	var learners []string
	for _, m := range p.Members {
		if m.Learner {
			learners = append(learners, m.Name)
		}
		if !filepath.IsAbs(m.DataDir) || m.WALDir != "" && !filepath.IsAbs(m.WALDir) {
			return nil, fmt.Errorf("restore: plan %s: the paths of member %s are not absolute", p.ID, m.Name)
		}
	}
	cluster, err := newCluster(p.InitialCluster(), p.ClusterToken, learners)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.ID, err)
	}
	for _, m := range cluster.Members() {
		if planned := p.member(m.Name); planned == nil || planned.ID != snapshot.ID(m.ID) || snapshot.ID(cluster.ID()) != p.ClusterID {
			return nil, fmt.Errorf("restore: plan %s was altered: the IDs of member %s and the cluster do not follow from its token and peer URLs", p.ID, m.Name)
		}
	}
	return p, nil
}

// defaultQuota is etcd's --quota-backend-bytes when it is not given.
const defaultQuota = 2 << 30

// memberNotes are about the new cluster's members.
func memberNotes(members []Member) []string {
	if len(members) == 0 {
		return nil
	}
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }

	var voters int
	var learners []string
	for _, m := range members {
		// What is mistyped here shows only when the members do not find each other.
		if len(m.PeerURLs) > 1 {
			add("member %s has %d peer URLs, %s: if they are those of several members, give each member a name of its own", m.Name, len(m.PeerURLs), strings.Join(m.PeerURLs, " and "))
		}
		for _, u := range m.PeerURLs {
			if strings.HasSuffix(u, ":2379") {
				add("the peer URL %s of member %s has the port that etcd's clients use, members use 2380: check it", u, m.Name)
			}
		}
		if m.Learner {
			learners = append(learners, m.Name)
		} else {
			voters++
		}
	}
	switch tolerates := (voters - 1) / 2; {
	case voters == 1:
		add("a single voter tolerates no failure")
	case voters%2 == 0:
		add("%d voters tolerate %d failures, as many as %d would, and need %d to agree: an odd number is better", voters, tolerates, voters-1, voters/2+1)
	}
	if len(learners) > 0 {
		add("%s will be learners: they receive the log, do not vote, and serve no linearizable reads until `etcdctl member promote`", strings.Join(learners, ", "))
	}
	if len(learners) > 1 {
		add("etcd 3.6 and newer refuse to start with %d learners unless --max-learners allows them", len(learners))
	}
	return notes
}

// DamagedMetaNote says that a meta page of what is restored is damaged.
func DamagedMetaNote(damage string) string {
	return "one of the database's two meta pages is damaged, and the other one is used: " + damage + ": check the disk that it was on"
}

// imageNotes are about the image, and hold for a snapshot file as well.
func imageNotes(source Source, oldest string, alarms []snapshot.Alarm, authOff bool) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }

	add("the result needs etcd %s or newer", oldest)
	if source.Size >= defaultQuota {
		add("the database has %s, etcd's quota is %s unless set otherwise: start with a larger --quota-backend-bytes, or the NOSPACE alarm comes back at once", humanize.IBytes(uint64(source.Size)), humanize.IBytes(defaultQuota))
	}
	for _, a := range alarms {
		switch a.Type {
		case "CORRUPT":
			add("the alarm CORRUPT of member %s is cleared: the source had found members that disagree, so check the data before you rely on it", a.MemberID)
		default:
			add("the alarm %s of member %s is cleared: it would block writes; where the quota is still too small, it comes back", a.Type, a.MemberID)
		}
	}
	if source.Facts.DamagedMeta != "" {
		notes = append(notes, DamagedMetaNote(source.Facts.DamagedMeta))
	}
	switch {
	case authOff:
		add("authentication will be off (--auth off): anyone who reaches a client URL can read and write everything. Users and roles are kept: set root's password (etcdctl user passwd root), then turn it on (etcdctl auth enable)")
	case source.Facts.AuthEnabled:
		add("authentication is on in the image: users, roles and passwords are those of the backup")
	}
	switch {
	case source.Summed:
	case source.Recipe != nil:
		add("what was begun from has no checksum (a bare db file): its structure is checked, damage inside keys and values would stay unnoticed")
	default:
		add("the image has no checksum (a bare db file): its structure is checked, damage inside keys and values would stay unnoticed; and what its member had only in its log is not in it")
	}
	if source.Recipe != nil && source.Recipe.Unproven != "" {
		add("unproven: %s", source.Recipe.Unproven)
	}
	return notes
}
