package verdict

import (
	"fmt"

	"github.com/requorum/requorum/verify/report"
)

// CheckObject is what Check calls the chain of verdicts.
const CheckObject = "verdicts"

// Check is the chain's part in a report: the checksum rung of all verdicts.
func (c Chain) Check() report.Check {
	check := report.Check{
		Rung: report.Checksum, Status: report.Passed, Object: CheckObject, Bytes: c.Bytes, Findings: c.Findings,
		Compared: fmt.Sprintf("%d verdicts with the sums that they carry, and each with the sum that the next one has of it", len(c.Entries)),
	}
	if len(c.Findings) > 0 {
		check.Status = report.Damaged
	}
	return check
}
