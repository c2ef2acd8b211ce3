package deploytest

import (
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// object is what the tests look at of an object of Kubernetes. That it has no
// other fields than its type was checked when it was read.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string // of a ConfigMap
	podSpecBearer
	AutomountServiceAccountToken *bool // of a ServiceAccount
}

type podSpecBearer struct {
	Spec struct {
		podSpec
		Template    struct{ Spec podSpec }
		JobTemplate struct {
			Spec struct{ Template struct{ Spec podSpec } }
		}
		PodSelector json.RawMessage
		PolicyTypes []string
	}
}

type podSpec struct {
	HostNetwork                   bool
	AutomountServiceAccountToken  *bool
	ServiceAccountName            string
	TerminationGracePeriodSeconds int
	SecurityContext               struct {
		RunAsNonRoot   bool
		RunAsUser      *int
		SeccompProfile struct{ Type string }
	}
	Containers []container
	Volumes    []struct {
		Name     string
		HostPath *hostPath
		Secret   struct{ SecretName string }
	}
}

// hostPath is what a pod sees of its host.
type hostPath struct{ Path, Type string }

type container struct {
	Name, Image     string
	Args, Command   []string
	Env             []struct{ Name, Value string }
	EnvFrom         []struct{ ConfigMapRef, SecretRef *struct{ Name string } }
	LivenessProbe   *probe
	ReadinessProbe  *probe
	Resources       struct{ Limits, Requests map[string]string }
	VolumeMounts    []mount
	SecurityContext struct {
		AllowPrivilegeEscalation *bool
		ReadOnlyRootFilesystem   bool
		Capabilities             struct{ Add, Drop []string }
	}
}

type mount struct {
	Name, MountPath, SubPath string
	ReadOnly                 bool
}

type probe struct {
	HTTPGet struct {
		Host, Path, Scheme string
		Port               int
	}
}

// pod is the object's pod.
func (o *object) pod() *podSpec {
	switch o.Kind {
	case "Pod":
		return &o.Spec.podSpec
	case "CronJob":
		return &o.Spec.JobTemplate.Spec.Template.Spec
	case "StatefulSet":
		return &o.Spec.Template.Spec
	}
	return nil
}

func manifestsTool(t testing.TB) string {
	t.Helper()
	tool := filepath.Join(top, ".cache", "bin", "manifests")
	_, err := exec.LookPath(tool)
	needs(t, err == nil, "there is no "+tool+" (.tools/build manifests)")
	return tool
}

// manifests are the objects of a file or kustomization of deploy/kubernetes, as the
// API server would read them.
func manifests(t testing.TB, folder ...string) []*object {
	t.Helper()
	text := must(t, nil, manifestsTool(t), filepath.Join(append([]string{top, "deploy", "kubernetes"}, folder...)...))
	var all []*object
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	return all
}

// workload is one container of requorum in a pod, with its settings.
type workload struct {
	object    *object
	container *container
	env       map[string]string
}

// workloads are the containers of requorum among objects, by their component or
// name.
func workloads(t testing.TB, all []*object) map[string]*workload {
	t.Helper()
	found := map[string]*workload{}
	for _, o := range all {
		p := o.pod()
		if p == nil {
			continue
		}
		for i := range p.Containers {
			c := &p.Containers[i]
			if image, _, _ := strings.Cut(c.Image, "@"); path.Base(image) != "requorum" {
				continue
			}
			w := &workload{o, c, map[string]string{}}
			for _, from := range c.EnvFrom {
				if from.ConfigMapRef != nil {
					for name, value := range configMap(t, all, from.ConfigMapRef.Name).Data {
						w.env[name] = value
					}
				}
			}
			for _, e := range c.Env {
				w.env[e.Name] = e.Value
			}
			found[c.Name] = w
		}
	}
	if len(found) == 0 {
		t.Fatal("requorum runs nowhere in it")
	}
	return found
}

func configMap(t testing.TB, all []*object, name string) *object {
	t.Helper()
	i := slices.IndexFunc(all, func(o *object) bool { return o.Kind == "ConfigMap" && o.Metadata.Name == name })
	if i < 0 {
		t.Fatalf("there is no ConfigMap %s", name)
	}
	return all[i]
}

// cronJobs are the jobs of the mode with snapshots alone.
func cronJobs(t testing.TB) map[string]*workload { return workloads(t, manifests(t, "snapshots")) }

// run runs the container's command line with its settings. What a user fills in is
// given; an empty text takes a setting away. paths are pairs, replaced in arguments.
func (w *workload) run(t testing.TB, want int, settings map[string]string, paths []string, more ...string) string {
	t.Helper()
	env := slices.Clone(more)
	for name, value := range w.env {
		if changed, is := settings[name]; is {
			value = changed
		}
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	for name := range settings {
		if _, is := w.env[name]; !is {
			t.Fatalf("%s has no setting %s", w.container.Name, name)
		}
	}
	args := slices.Clone(w.container.Args)
	for i := range args {
		args[i] = strings.NewReplacer(paths...).Replace(args[i])
	}
	e := run(t, env, storetest.Requorum(t), args...)
	if e.code != want {
		t.Fatalf("%s: exit code %d, want %d\n%s", strings.Join(args, " "), e.code, want, e.text)
	}
	return e.text
}
