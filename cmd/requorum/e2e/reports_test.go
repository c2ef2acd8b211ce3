package e2e

import (
	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// The exit codes that docs/commands.md promises.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDamaged     = 3
	exitNothing     = 4
	exitIncomplete  = 5
	exitUnproven    = 6
	exitStartedOver = 7
	exitInterrupted = 130
)

// What --output json promises, as far as these tests read it: named here once more, so that
// a field that is renamed is noticed.
type (
	backupReport struct {
		NewTimeline bool               `json:"new_timeline"`
		Backup      *snapshot.Manifest `json:"backup"`
		Skipped     []struct {
			Endpoint string `json:"endpoint"`
			Error    string `json:"error"`
		} `json:"skipped_members"`
		Streamed string `json:"streamed"`
	}
	backupPlanReport struct {
		Members []struct {
			Name     string `json:"name"`
			Endpoint string `json:"endpoint"`
		} `json:"members"`
		File string `json:"file"`
	}
	catalogReport struct {
		ID          string                  `json:"id"`
		Timelines   []repository.Timeline   `json:"timelines"`
		Current     *repository.TimelineID  `json:"current_timeline"`
		StartedOver string                  `json:"started_over"`
		Superseded  []repository.Superseded `json:"superseded"`
		Backups     []listedBackup          `json:"backups"`
		Unusable    []struct{ Object, Error string }
		Incomplete  []incompleteReport `json:"incomplete"`
		Ranges      []walreplay.Range  `json:"ranges"`
		Logs        []struct {
			Timeline repository.TimelineID `json:"timeline"`
			Segments int                   `json:"segments"`
			Small    int                   `json:"small"`
			Marks    int                   `json:"marks"`
			Bytes    int64                 `json:"bytes"`
		} `json:"logs"`
	}
	listedBackup struct {
		*snapshot.Manifest
		Proved *struct {
			Status  report.Status `json:"status"`
			Level   report.Level  `json:"level"`
			Verdict uint64        `json:"verdict"`
			Host    string        `json:"host"`
		} `json:"proved"`
		Pinned *repository.Pin `json:"pinned"`
	}
	incompleteReport struct {
		Timeline repository.TimelineID `json:"timeline"`
		ID       string                `json:"id"`
		Pruned   bool                  `json:"pruned"`
	}
	restoreReport struct {
		Restore    *restore.Result `json:"restore"`
		Timeline   string          `json:"timeline"`
		Unrecorded string          `json:"parent_timeline"`
		Endpoints  []string        `json:"endpoints"`
	}
	recoveryReport struct {
		Proven    bool                     `json:"proven"`
		Plan      *sources.Plan            `json:"plan"`
		Findings  *sources.Findings        `json:"findings"`
		Members   []sources.NewMember      `json:"members"`
		Compared  *sources.Comparison      `json:"cross_check"`
		Restore   *restore.Result          `json:"restore"`
		Lineage   []recovery.TimelinesDone `json:"lineage"`
		Endpoints []string                 `json:"endpoints"`
	}
	verifyReport struct {
		Status report.Status `json:"status"`
		*report.Report
		Verdict *struct {
			Backups int    `json:"backups"`
			Error   string `json:"error"`
		} `json:"verdict"`
	}
	pruneReport struct {
		Plan   *retention.Plan   `json:"plan"`
		Result *retention.Result `json:"result"`
	}
	doctorReport struct {
		OK     bool          `json:"ok"`
		Checks []checkReport `json:"checks"`
	}
	checkReport struct {
		Check  string `json:"check"`
		Status string `json:"status"`
		Text   string `json:"text"`
		Next   string `json:"next"`
	}
)

// The statuses of a check of doctor.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkProblem = "problem"
)
