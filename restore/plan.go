package restore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/snapshot"
)

// PlanFormat is the number of the plan's JSON format. A reader refuses a number
// that it does not know.
const PlanFormat = 1

// Plan is everything that was decided about a restore: pure data, the same on
// every host. Its JSON form is stable.
type Plan struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"` // random, names this plan in files and messages
	CreatedAt time.Time `json:"created_at"`
	Source    Source    `json:"source"`

	ClusterToken string      `json:"cluster_token"`
	ClusterID    snapshot.ID `json:"cluster_id"`
	Members      []Member    `json:"members"` // by name

	// SetAside allows to move an existing directory's content aside.
	SetAside bool   `json:"set_aside"`
	Owner    *Owner `json:"owner,omitempty"`
	Engine   string `json:"engine"`

	// Bump is nil when the revision stays as it is.
	Bump *Bump `json:"bump,omitempty"`
	// ClearAlarms are the alarms of the image that the result will not have.
	ClearAlarms []snapshot.Alarm `json:"clear_alarms,omitempty"`

	// OldestTarget is the oldest etcd, such as "3.6", that can start the result;
	// TargetVersion the one that was asked for.
	OldestTarget  string `json:"oldest_target"`
	TargetVersion string `json:"target_version,omitempty"`

	// BytesDB and BytesWAL are what one member takes on disk while it is built.
	BytesDB  int64 `json:"bytes_db"`
	BytesWAL int64 `json:"bytes_wal"`

	// Notes are sentences for the user.
	Notes []string `json:"notes,omitempty"`
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
	facts, err := req.Image.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore: look into %s: %w", req.Image.Name(), err)
	}
	p := &Plan{
		Format:        PlanFormat,
		ID:            randomHex(8),
		CreatedAt:     time.Now().UTC().Truncate(time.Second),
		Source:        sourceOf(req.Image, req.Repository, req.BackupID, facts),
		ClusterToken:  req.ClusterToken,
		SetAside:      req.SetAside,
		Owner:         req.Owner,
		Engine:        req.Engine,
		ClearAlarms:   facts.Alarms,
		TargetVersion: req.TargetVersion,
		BytesWAL:      walBytes(),
	}
	if p.ClusterToken == "" {
		p.ClusterToken = "requorum-" + randomHex(8)
	}
	if p.Engine == "" {
		p.Engine = EngineRequorum
	}
	if p.OldestTarget, err = planTarget(req.TargetVersion, facts); err != nil {
		return nil, err
	}
	if p.Members, p.ClusterID, err = planMembers(req, p.ClusterToken); err != nil {
		return nil, err
	}
	if req.Only != "" && p.member(req.Only) == nil {
		return nil, fmt.Errorf("restore: %s is no member of %q", req.Only, req.InitialCluster)
	}
	var notes []string
	if p.Bump, notes, err = planBump(req.Bump, facts, req.HighestKnownRevision); err != nil {
		return nil, err
	}
	p.BytesDB = p.Source.Size + editBytes
	p.Notes = append(planNotes(p), notes...)
	if p.Engine == EngineEtcdutl {
		if err := etcdutlCan(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func planMembers(req Request, token string) ([]Member, snapshot.ID, error) {
	cluster, err := newCluster(req.InitialCluster, token, req.Learners)
	if err != nil {
		return nil, 0, err
	}
	var members []Member
	for _, m := range cluster.Members() {
		dir, err := expand(req.DataDir, m.Name)
		if err != nil {
			return nil, 0, err
		}
		wal := ""
		if req.WALDir != "" {
			if wal, err = expand(req.WALDir, m.Name); err != nil {
				return nil, 0, err
			}
		}
		members = append(members, Member{
			Name: m.Name, ID: snapshot.ID(m.ID), PeerURLs: m.PeerURLs, Learner: m.IsLearner, DataDir: dir, WALDir: wal,
		})
	}
	sortByName(members)
	return members, snapshot.ID(cluster.ID()), nil
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

// Marshal writes the plan as JSON, for a file that other hosts read.
func (p *Plan) Marshal() ([]byte, error) {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("restore: write plan %s: %w", p.ID, err)
	}
	return append(b, '\n'), nil
}

// ParsePlan reads what Marshal wrote. Unknown fields and formats, and IDs that
// do not follow from the token and the URLs, are refused: half of a plan would
// be another cluster.
func ParsePlan(data []byte) (*Plan, error) {
	var p Plan
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, fmt.Errorf("restore: read the plan: %w", err)
	}
	if p.Format != PlanFormat {
		return nil, fmt.Errorf("restore: plan %s has the format %d, this program reads %d: use the version that wrote it", p.ID, p.Format, PlanFormat)
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
	return &p, nil
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
		return nil, fmt.Errorf("restore: %s is no member of the planned cluster %s", only, p.InitialCluster())
	}
	return []Member{*m}, nil
}

// matches tells whether q, an earlier plan, gives what p asks for, whatever
// token and IDs either drew. What is known of the lineage may have grown
// since, but not beyond q's bump.
func (p *Plan) matches(q *Plan) bool {
	if p.ID == q.ID {
		return true
	}
	if p.Bump != nil && q.Bump != nil && q.Bump.NewRevision <= p.Bump.HighestKnown {
		return false
	}
	plain := func(p *Plan) Plan {
		c := *p
		c.ID, c.CreatedAt, c.ClusterToken, c.ClusterID, c.Notes = "", time.Time{}, "", 0, nil
		c.Members = nil
		if c.Bump != nil && c.Bump.Mode == BumpAuto {
			c.Bump = &Bump{From: c.Bump.From}
		}
		for _, m := range p.Members {
			m.ID = 0
			c.Members = append(c.Members, m)
		}
		return c
	}
	a, errA := json.Marshal(plain(p))
	b, errB := json.Marshal(plain(q))
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
