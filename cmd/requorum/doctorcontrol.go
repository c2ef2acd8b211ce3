package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/requorum/requorum/schedule/control/config"
)

// control is the configuration of agent control that is to be tried: the one
// that is named, or the one that lies beside the agent's; empty where there is none.
func (o *doctorOptions) control() string {
	if o.controlConfig != "" || o.agentConfig == "" {
		return o.controlConfig
	}
	beside := filepath.Join(filepath.Dir(o.agentConfig), "control.yaml")
	if _, err := os.Stat(beside); err != nil {
		return ""
	}
	return beside
}

// examineControl tries what lets a recovery control this host's member.
func (e *examination) examineControl(ctx context.Context) {
	file := e.options.control()
	if file == "" {
		return
	}
	check := "agent control " + file
	cfg, err := config.Read(file)
	switch {
	case errors.Is(err, fs.ErrPermission) && e.options.controlConfig == "":
		e.add(checkWarn, check, "was not tried: "+err.Error(), "run doctor as root with --control-config "+file+": control is a process of its own, with rights of its own")
		return
	case err != nil:
		e.failed(check, err, "mend it as "+config.Guide+" describes it")
		return
	}
	warnings, err := tryControl(ctx, cfg)
	for _, w := range warnings {
		e.add(checkWarn, check, w, "see "+config.Guide)
	}
	if err != nil {
		e.failed(check, err, "mend what it names, then try again: "+config.Guide+" has every key")
		return
	}
	if len(warnings) == 0 {
		e.add(checkOK, check, "can be honoured: member "+cfg.Member.Name+" ("+string(cfg.Member.Kind)+")", "")
	}
}
