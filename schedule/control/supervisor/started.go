package supervisor

import (
	"context"
	"fmt"
	"strings"
)

// UnitCommand is what a unit starts.
type UnitCommand struct {
	// Argv is the command line, as systemd prints it: parted at its blanks.
	Argv []string
	// Environment are the environment files that it reads; nil where systemd does not
	// say.
	Environment []string
}

// Started asks systemd what the unit starts.
func (u Unit) Started(ctx context.Context) (c UnitCommand, err error) {
	out, err := Ask(ctx, u.Systemctl, "show", "--property=ExecStart,EnvironmentFiles", "--", u.Name)
	if err != nil {
		return c, fmt.Errorf("what unit %s starts: %w", u.Name, err)
	}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ExecStart": // { path=/usr/bin/etcd ; argv[]=/usr/bin/etcd --name m1 ; ignore_errors=no ; … }
			if _, argv, ok := strings.Cut(value, "argv[]="); ok {
				argv, _, _ = strings.Cut(argv, " ; ")
				c.Argv = strings.Fields(argv)
			}
		case "EnvironmentFiles": // /etc/default/etcd (ignore_errors=yes)
			path, _, _ := strings.Cut(value, " (ignore_errors=")
			c.Environment = append(c.Environment, path)
		}
	}
	return c, nil
}
