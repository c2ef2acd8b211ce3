package flagfile

import (
	"errors"
	"fmt"
	"strings"
)

// argument is a flag among a program's arguments.
type argument struct {
	flag, value string
	// item is the number of the argument that has the value, and prefix what stands
	// before it there.
	item   int
	prefix string
}

// arguments finds our flags, by name. It fails where what etcd would make of the
// arguments is not plain.
func arguments(args []string) (map[string]argument, error) {
	found := map[string]argument{}
	for i := 0; i < len(args); i++ {
		if strings.ContainsAny(args[i], " \t\n") && strings.Contains(args[i], "-initial-") {
			return nil, errors.New("a shell reads them")
		}
		name, dashed := strings.CutPrefix(args[i], "-")
		if !dashed {
			continue
		}
		name = strings.TrimPrefix(name, "-")
		name, value, whole := strings.Cut(name, "=")
		if name == "config-file" {
			return nil, errors.New("--config-file is given, and etcd reads nothing else then")
		}
		if (&Flags{}).at(name) == nil {
			continue
		}
		a := argument{flag: name, value: value, item: i}
		if whole {
			a.prefix = strings.TrimSuffix(args[i], value)
		} else {
			if i+1 == len(args) {
				return nil, fmt.Errorf("--%s has no value", name)
			}
			i++
			a.item, a.value = i, args[i]
		}
		if _, twice := found[name]; twice {
			return nil, fmt.Errorf("--%s is given twice", name)
		}
		found[name] = a
	}
	return found, nil
}

// fromArguments are the flags that a program's arguments give.
func fromArguments(args []string) (f Flags, err error) {
	found, err := arguments(args)
	for name, a := range found {
		*f.at(name) = a.value
	}
	return f, err
}
