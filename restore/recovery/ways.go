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
