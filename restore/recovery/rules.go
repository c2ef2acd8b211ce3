package recovery

import "strings"

// rulesOf is the minor version of etcd by whose rules a candidate's log may have been
// applied otherwise than by today's, where nobody said which patch it was; empty where
// that makes no difference, or a backup tells it. The rules are about authentication:
// see walreplay.Options.SourceVersion.
func (d *decision) rulesOf(c *Candidate) string {
	if d.req.SourceVersion != "" || c.Source == nil || c.Source.Base.Backup != "" || len(c.Source.Log) == 0 {
		return ""
	}
	for i := range d.findings.Survivors {
		for _, db := range d.findings.Survivors[i].Databases {
			if db.Path != c.Source.Base.Path || d.findings.Survivors[i].Name != c.Source.Base.Owner || !db.facts.AuthEnabled {
				continue
			}
			for _, v := range []string{"3.4", "3.5", "3.6"} {
				if strings.HasPrefix(db.ClusterVersion, v+".") {
					return v
				}
			}
		}
	}
	return ""
}
