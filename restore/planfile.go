package restore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/requorum/requorum/snapshot"
)

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
