package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
)

// keyPrefix begins all keys, as in Kubernetes.
const keyPrefix = "/registry/"

// object is one key and its value.
type object struct {
	key, value string
}

// kind makes a new object of its kind.
type kind func(*objects) object

// objects makes values like those that Kubernetes keeps in etcd: 0.5–8 KB,
// most of it structure that repeats from object to object, with random parts
// (UIDs, digests, tokens, addresses) that do not compress. Built-in kinds have
// the shape of its protobuf encoding, custom resources are JSON.
//
// The same seed gives the same objects.
type objects struct {
	rng *rand.Rand
}

func newObjects(seed uint64) *objects {
	return &objects{rng: rand.New(rand.NewPCG(seed, 7))} //nolint:gosec // values, not secrets
}

// draw picks a kind by how often it is seen in clusters.
func (o *objects) draw() kind {
	switch p := o.rng.IntN(100); {
	case p < 38:
		return (*objects).pod
	case p < 58:
		return (*objects).event
	case p < 70:
		return (*objects).endpointSlice
	case p < 80:
		return (*objects).configMap
	case p < 88:
		return (*objects).secret
	default:
		return (*objects).customResource
	}
}

var (
	namespaces = []string{"default", "kube-system", "monitoring", "ingress", "payments", "shop-frontend", "shop-backend", "data-platform"}
	apps       = []string{"api", "web", "worker", "cache", "search", "billing", "auth", "gateway", "mailer", "reports"}
	reasons    = []string{"Scheduled", "Pulled", "Created", "Started", "Killing", "Unhealthy", "BackOff", "FailedScheduling"}
)

func (o *objects) hex(n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%016x", o.rng.Uint64())
	}
	return b.String()[:n]
}

func (o *objects) base64(n int) string {
	raw := make([]byte, 0, n+8)
	for len(raw) < n {
		raw = binary.LittleEndian.AppendUint64(raw, o.rng.Uint64())
	}
	return base64.StdEncoding.EncodeToString(raw[:n])
}

func (o *objects) uid() string {
	h := o.hex(32)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (o *objects) pick(from []string) string { return from[o.rng.IntN(len(from))] }

func (o *objects) ip() string {
	return fmt.Sprintf("10.%d.%d.%d", o.rng.IntN(64), o.rng.IntN(256), o.rng.IntN(256))
}

func (o *objects) stamp() string {
	return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02dZ", 1+o.rng.IntN(6), 1+o.rng.IntN(28), o.rng.IntN(24), o.rng.IntN(60), o.rng.IntN(60))
}

// meta is an object's metadata, with the managed fields that make up much of a
// real one.
func (o *objects) meta(kind, ns, app, name string) []string {
	meta := []string{
		name, ns, o.uid(), o.stamp(), fmt.Sprintf("%d", o.rng.IntN(40)),
		"app.kubernetes.io/name", app,
		"app.kubernetes.io/instance", app + "-" + ns,
		"app.kubernetes.io/managed-by", "Helm",
		"pod-template-hash", o.hex(10),
		"checksum/config", o.hex(64),
	}
	for range 1 + o.rng.IntN(2) {
		meta = append(meta, "kube-controller-manager", "Update", "v1", o.stamp(), "FieldsV1",
			`{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"`+
				o.uid()+`\"}":{}}},"f:kind":"`+kind+`","f:spec":{"f:containers":{"k:{\"name\":\"`+app+
				`\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{}}}}}`)
	}
	return meta
}

func (o *objects) pod() object {
	ns, app := o.pick(namespaces), o.pick(apps)
	name := fmt.Sprintf("%s-%s-%s", app, o.hex(10), o.hex(5))
	fields := o.meta("Pod", ns, app, name)
	for c := range 1 + o.rng.IntN(3) {
		image := fmt.Sprintf("registry.example.com/%s/%s:v1.%d.%d", ns, app, o.rng.IntN(30), o.rng.IntN(10))
		fields = append(fields, fmt.Sprintf("%s-%d", app, c), image, "--config=/etc/app/config.yaml", "--log-format=json",
			"POD_NAMESPACE", ns, "POD_NAME", name, "DATABASE_URL", "postgres://"+app+"@db."+ns+".svc.cluster.local:5432/"+app,
			"cpu", fmt.Sprintf("%dm", 50*(1+o.rng.IntN(20))), "memory", fmt.Sprintf("%dMi", 64*(1+o.rng.IntN(32))),
			"kube-api-access-"+o.hex(5), "/var/run/secrets/kubernetes.io/serviceaccount", "/dev/termination-log", "File", "IfNotPresent",
			"/healthz", "/readyz", "containerd://"+o.hex(64), image+"@sha256:"+o.hex(64))
	}
	for _, condition := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		fields = append(fields, condition, "True", "", o.stamp())
	}
	fields = append(fields, "Running", o.ip(), o.ip(), "Burstable", "node-"+fmt.Sprint(o.rng.IntN(400)),
		"node.kubernetes.io/not-ready", "Exists", "NoExecute", "node.kubernetes.io/unreachable", "Exists", "NoExecute", "default-scheduler", "Always", "ClusterFirst")
	return object{keyPrefix + "pods/" + ns + "/" + name, protobuf("v1", "Pod", fields)}
}

func (o *objects) event() object {
	ns, app := o.pick(namespaces), o.pick(apps)
	name := fmt.Sprintf("%s-%s-%s.%s", app, o.hex(10), o.hex(5), o.hex(16))
	reason := o.pick(reasons)
	fields := append(o.meta("Event", ns, app, name)[:5], "Pod", ns, name, o.uid(), "v1", "spec.containers{"+app+"}", reason,
		"Successfully processed "+reason+" for container "+app+" on node-"+fmt.Sprint(o.rng.IntN(400))+" in "+fmt.Sprint(o.rng.IntN(9000))+"ms",
		"kubelet", "node-"+fmt.Sprint(o.rng.IntN(400)), o.stamp(), o.stamp(), "Normal", "kubelet",
		`{"f:count":{},"f:firstTimestamp":{},"f:involvedObject":{},"f:lastTimestamp":{},"f:message":{},"f:reason":{},"f:reportingComponent":{},"f:source":{"f:component":{}},"f:type":{}}`)
	return object{keyPrefix + "events/" + ns + "/" + name, protobuf("v1", "Event", fields)}
}

func (o *objects) endpointSlice() object {
	ns, app := o.pick(namespaces), o.pick(apps)
	name := app + "-" + o.hex(5)
	fields := o.meta("EndpointSlice", ns, app, name)
	for range 2 + o.rng.IntN(24) {
		fields = append(fields, o.ip(), "true", "true", "false", "Pod", ns, app+"-"+o.hex(10)+"-"+o.hex(5), o.uid(),
			"node-"+fmt.Sprint(o.rng.IntN(400)), "zone-"+string(rune('a'+o.rng.IntN(3))))
	}
	return object{keyPrefix + "endpointslices/" + ns + "/" + name, protobuf("discovery.k8s.io/v1", "EndpointSlice", fields)}
}

func (o *objects) configMap() object {
	ns, app := o.pick(namespaces), o.pick(apps)
	name := app + "-config-" + o.hex(8)
	var conf strings.Builder
	for i := range 10 + o.rng.IntN(54) {
		fmt.Fprintf(&conf, "%s.setting-%d.timeout: %dms\n%s.setting-%d.endpoint: http://%s.%s.svc:%d/v%d\n",
			app, i, o.rng.IntN(30000), app, i, o.pick(apps), ns, 8000+o.rng.IntN(999), 1+o.rng.IntN(3))
	}
	return object{keyPrefix + "configmaps/" + ns + "/" + name, protobuf("v1", "ConfigMap", append(o.meta("ConfigMap", ns, app, name), "config.yaml", conf.String()))}
}

// secret is a certificate and its key: random bytes in base64.
func (o *objects) secret() object {
	ns, app := o.pick(namespaces), o.pick(apps)
	name := app + "-tls-" + o.hex(8)
	return object{keyPrefix + "secrets/" + ns + "/" + name, protobuf("v1", "Secret", append(o.meta("Secret", ns, app, name),
		"tls.crt", "-----BEGIN CERTIFICATE-----\n"+o.base64(700+o.rng.IntN(900))+"\n-----END CERTIFICATE-----\n",
		"tls.key", "-----BEGIN PRIVATE KEY-----\n"+o.base64(1200)+"\n-----END PRIVATE KEY-----\n", "kubernetes.io/tls"))}
}

func (o *objects) customResource() object {
	ns, app := o.pick(namespaces), o.pick(apps)
	name := app + "-" + o.hex(8)
	var rules strings.Builder
	for i := range 4 + o.rng.IntN(28) {
		if i > 0 {
			rules.WriteByte(',')
		}
		fmt.Fprintf(&rules, `{"match":{"path":"/%s/v%d","method":"GET","headers":{"x-request-id":"%s"}},"route":{"service":"%s","port":%d,"weight":%d},"retries":{"attempts":3,"perTryTimeout":"%ds"}}`,
			o.pick(apps), 1+o.rng.IntN(3), o.hex(16), o.pick(apps), 8000+o.rng.IntN(999), o.rng.IntN(100), 1+o.rng.IntN(30))
	}
	value := fmt.Sprintf(`{"apiVersion":"networking.example.com/v1","kind":"TrafficRoute","metadata":{"name":"%s","namespace":"%s","uid":"%s","creationTimestamp":"%s","generation":%d,"labels":{"app.kubernetes.io/name":"%s"},"managedFields":[{"manager":"helm","operation":"Update","apiVersion":"networking.example.com/v1","time":"%s","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:rules":{},"f:hosts":{}}}}]},"spec":{"hosts":["%s.%s.example.com"],"rules":[%s]},"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"%s","reason":"Programmed","message":"route is programmed on all gateways"}]}}`,
		name, ns, o.uid(), o.stamp(), 1+o.rng.IntN(9), app, o.stamp(), app, ns, rules.String(), 1+o.rng.IntN(9), o.stamp())
	return object{keyPrefix + "networking.example.com/trafficroutes/" + ns + "/" + name, value}
}

// protobuf writes fields the way Kubernetes stores built-in kinds: a magic
// prefix, then tag, length and bytes of each.
func protobuf(version, kind string, fields []string) string {
	b := append(make([]byte, 0, 4096), "k8s\x00"...)
	for i, f := range append([]string{version, kind}, fields...) {
		b = append(b, byte((1+i%15)<<3|2))
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return string(b)
}
