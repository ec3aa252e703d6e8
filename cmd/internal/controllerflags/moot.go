package controllerflags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Moot is a flag of kube-controller-manager that has no effect in Millrace. Only upstream's
// default is accepted, because manifests may spell it out; any other value is an error, because
// it would ask for something that does not happen.
type Moot struct {
	// Flag is its name.
	Flag string
	is   any // the default: a time.Duration, bool, int or string
	// Since is the reason, for errors and for the help.
	Since string
	// Also are other accepted values, which have the same effect in Millrace.
	Also []any
	// Any accepts every value.
	Any bool
}

// taken is the flag value of a moot: the value given last.
type taken struct {
	Moot
	now any
}

func (t *taken) String() string { return fmt.Sprint(t.now) }

// Type is the value's name in the help.
func (t *taken) Type() string {
	if _, period := t.is.(time.Duration); period {
		return "duration"
	}
	return fmt.Sprintf("%T", t.is)
}

// Set accepts one of the allowed values.
func (t *taken) Set(text string) error {
	is, err := t.Read(text)
	if err != nil {
		return err
	}
	if !t.Any && is != t.is && !slices.Contains(t.Also, is) {
		return fmt.Errorf("it is %s and nothing else, since %s; take it out", t.Values(), t.Since)
	}
	t.now = is
	return nil
}

// Read parses text as a value of the flag's type.
func (m Moot) Read(text string) (any, error) {
	switch m.is.(type) {
	case time.Duration:
		return time.ParseDuration(text)
	case bool:
		return strconv.ParseBool(text)
	case int:
		return strconv.Atoi(text)
	default:
		return text, nil
	}
}

// Values are the accepted values, as text for an error.
func (m Moot) Values() string {
	if m.Any {
		return "anything"
	}
	var all []string
	for _, v := range append([]any{m.is}, m.Also...) {
		if v == "" {
			v = "empty"
		}
		all = append(all, fmt.Sprint(v))
	}
	return strings.Join(all, " or ")
}

// Moots are the moot flags of controllers and of the whole process.
func Moots() []Moot { return append(mootOfControllers(), mootOfTheWhole()...) }

func mootOfControllers() []Moot {
	const (
		joined   = "changes that come while the last ones are written are joined without waiting"
		recycled = "volumes are not recycled here"
		attached = "what is attached is looked at whenever it changes"
	)
	return []Moot{
		{Flag: "endpoint-updates-batch-period", is: time.Duration(0), Since: joined},
		{Flag: "endpointslice-updates-batch-period", is: time.Duration(0), Since: joined},
		{Flag: "mirroring-endpointslice-updates-batch-period", is: time.Duration(0), Since: joined},
		{Flag: "node-monitor-period", is: 5 * time.Second, Since: "a node is judged when it has been silent for long enough, and not once in a while"},
		{Flag: "pvclaimbinder-sync-period", is: 15 * time.Second, Since: "a claim or volume is looked at whenever something could have come of it"},
		{Flag: "enable-hostpath-provisioner", is: false, Since: "directories of the machine are made volumes by kube-controller-manager alone"},
		{Flag: "pv-recycler-maximum-retry", is: 3, Since: recycled},
		{Flag: "pv-recycler-pod-template-filepath-nfs", is: "", Since: recycled},
		{Flag: "pv-recycler-minimum-timeout-nfs", is: 300, Since: recycled},
		{Flag: "pv-recycler-increment-timeout-nfs", is: 30, Since: recycled},
		{Flag: "pv-recycler-pod-template-filepath-hostpath", is: "", Since: recycled},
		{Flag: "pv-recycler-minimum-timeout-hostpath", is: 60, Since: recycled},
		{Flag: "pv-recycler-timeout-increment-hostpath", is: 30, Since: recycled},
		{Flag: "flex-volume-plugin-dir", is: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", Since: "no FlexVolumes are attached or expanded here"},
		{Flag: "namespace-sync-period", is: 5 * time.Minute, Since: "a namespace is looked at whenever something could have come of it"},
		{Flag: "attach-detach-reconcile-sync-period", is: time.Minute, Since: attached},
		{Flag: "disable-attach-detach-reconcile-sync", is: false, Since: attached},
	}
}

func mootOfTheWhole() []Moot {
	const (
		cloud   = "controllers of clouds are in the cloud-controller-manager"
		scraped = "labels are rewritten where they are scraped (metric_relabel_configs)"
		alone   = "one process listens on the health address"
		release = "everything here is decided as by Kubernetes " + Kubernetes
	)
	return []Moot{
		{Flag: "cluster-name", is: "kubernetes", Any: true, Since: "it is for the names of a cloud's load balancers and routes, and " + cloud},
		{Flag: "cloud-provider", is: "", Also: []any{"external"}, Since: cloud},
		{Flag: "cloud-config", is: "", Since: cloud},
		{Flag: "configure-cloud-routes", is: true, Also: []any{false}, Since: cloud + ", and no routes are made here"},
		{Flag: "allow-untagged-cloud", is: false, Since: cloud},
		{Flag: "external-cloud-volume-plugin", is: "", Since: cloud},
		{Flag: "route-reconciliation-period", is: 10 * time.Second, Since: cloud},
		{Flag: "node-sync-period", is: time.Duration(0), Since: "it has no effect in kube-controller-manager either"},
		{Flag: "concurrent-service-syncs", is: 1, Since: cloud},

		{Flag: "leader-elect-resource-lock", is: "leases", Since: "nothing else is elected by, here or in kube-controller-manager"},
		{Flag: "min-resync-period", is: 12 * time.Hour, Since: "what is missed is noticed when a watch begins anew, and nothing is listed once in a while"},
		{Flag: "controller-start-interval", is: time.Duration(0), Since: "controllers wait for what they read, and not for each other"},
		{Flag: "kube-api-content-type", is: "application/vnd.kubernetes.protobuf", Since: "each request is of the type that suits what it carries"},
		{Flag: "emulated-version", is: "", Also: []any{Kubernetes, ofKube + Kubernetes}, Since: release},
		{Flag: "min-compatibility-version", is: "", Also: []any{Previous, ofKube + Previous}, Since: release},

		{Flag: "disable-http2-serving", is: false, Also: []any{true}, Since: "the health address speaks HTTP/1.1 alone"},
		{Flag: "http2-max-streams-per-connection", is: 0, Since: "the health address speaks HTTP/1.1 alone"},
		{Flag: "permit-port-sharing", is: false, Since: alone},
		{Flag: "permit-address-sharing", is: false, Since: alone},
		{Flag: "allow-metric-labels", is: "", Since: scraped},
		{Flag: "allow-metric-labels-manifest", is: "", Since: scraped},
	}
}

func addMoot(f *pflag.FlagSet) {
	for _, m := range Moots() {
		of := "no other value than kube-controller-manager's default: "
		if m.Any || len(m.Also) > 0 {
			of = "kube-controller-manager's; " + m.Values() + ": "
		}
		made := f.VarPF(&taken{m, m.is}, m.Flag, "", of+m.Since)
		if _, bool := m.is.(bool); bool {
			made.NoOptDefVal = "true" // so that it can be said without a value
		}
	}
}
