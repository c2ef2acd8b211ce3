package recovery

import "slices"

// NameOf is what names a way to a state, as DecideRequest.Source takes it: the
// candidate that goes it, or, where it is only among the others of one, those whose
// data it is made of.
func (p *Plan) NameOf(way *Source) string {
	for i := range p.Candidates {
		if c := &p.Candidates[i]; c.Source != nil && c.Source.same(way) {
			return c.Name
		}
	}
	return way.name()
}

// Unguarded tells whether it begins from a member's database. That has no checksums,
// as a backup and logs have: damage inside a value shows only beside another one.
func (s *Source) Unguarded() bool { return s.Base.Path != "" }

// Rivals are the ways among the others that begin from another owner's database, at
// an index or before: what they give is what this one has to give. None where it is
// not unguarded.
func (s *Source) Rivals(index uint64) (all []Source) {
	if !s.Unguarded() {
		return nil
	}
	for _, way := range s.Others {
		if way.Base.Owner != s.Base.Owner && way.Base.Index <= index {
			all = append(all, way)
		}
	}
	return all
}

// promote makes a candidate of a way that is only among the others of one, and that
// is asked for by its name; nil where there is none.
func (d *decision) promote(name string) *Candidate {
	for _, c := range d.plan.Candidates {
		if c.Source == nil {
			continue
		}
		for i := range c.Source.Others {
			way := c.Source.Others[i]
			if way.name() != name {
				continue
			}
			main := *c.Source
			main.Others = nil
			way.Others = append([]Source{main}, slices.Delete(slices.Clone(c.Source.Others), i, i+1)...)
			c.Name, c.Kind, c.Rank, c.Source, c.Findings = name, FromJoined, 0, &way, nil
			c.Why = "another way to where " + d.plan.NameOf(&main) + " leads: it is used only when it is named"
			d.plan.Candidates = append(d.plan.Candidates, c)
			return &d.plan.Candidates[len(d.plan.Candidates)-1]
		}
	}
	return nil
}
