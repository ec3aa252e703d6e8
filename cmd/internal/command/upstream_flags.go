package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// moot is a flag of kube-controller-manager that has no effect in Millrace. Only upstream's
// default is accepted, because manifests may spell it out; any other value is an error, because
// it would ask for something that does not happen.
type moot struct {
	flag  string
	is    value
	since string
	// also are other accepted values, which have the same effect in Millrace.
	also []value
	// any accepts every value.
	any bool
}

// value is a time.Duration, bool, int or string.
type value any

// taken is the flag value of a moot: the value given last.
type taken struct {
	moot
	now value
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
	is, err := t.read(text)
	if err != nil {
		return err
	}
	if !t.any && is != t.is && !slices.Contains(t.also, is) {
		return fmt.Errorf("it is %s and nothing else, since %s; take it out", t.values(), t.since)
	}
	t.now = is
	return nil
}

// read parses text as a value of the flag's type.
func (m moot) read(text string) (value, error) {
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

// values are the accepted values, as text for an error.
func (m moot) values() string {
	if m.any {
		return "anything"
	}
	var all []string
	for _, v := range append([]value{m.is}, m.also...) {
		if v == "" {
			v = "empty"
		}
		all = append(all, fmt.Sprint(v))
	}
	return strings.Join(all, " or ")
}

// moots are the moot flags of controllers and of the whole process.
func moots() []moot { return append(mootOfControllers(), mootOfTheWhole()...) }

func mootOfControllers() []moot {
	const (
		joined   = "changes that come while the last ones are written are joined without waiting"
		recycled = "volumes are not recycled here"
		attached = "what is attached is looked at whenever it changes"
	)
	return []moot{
		{flag: "endpoint-updates-batch-period", is: time.Duration(0), since: joined},
		{flag: "endpointslice-updates-batch-period", is: time.Duration(0), since: joined},
		{flag: "mirroring-endpointslice-updates-batch-period", is: time.Duration(0), since: joined},
		{flag: "node-monitor-period", is: 5 * time.Second, since: "a node is judged when it has been silent for long enough, and not once in a while"},
		{flag: "pvclaimbinder-sync-period", is: 15 * time.Second, since: "a claim or volume is looked at whenever something could have come of it"},
		{flag: "enable-hostpath-provisioner", is: false, since: "directories of the machine are made volumes by kube-controller-manager alone"},
		{flag: "pv-recycler-maximum-retry", is: 3, since: recycled},
		{flag: "pv-recycler-pod-template-filepath-nfs", is: "", since: recycled},
		{flag: "pv-recycler-minimum-timeout-nfs", is: 300, since: recycled},
		{flag: "pv-recycler-increment-timeout-nfs", is: 30, since: recycled},
		{flag: "pv-recycler-pod-template-filepath-hostpath", is: "", since: recycled},
		{flag: "pv-recycler-minimum-timeout-hostpath", is: 60, since: recycled},
		{flag: "pv-recycler-timeout-increment-hostpath", is: 30, since: recycled},
		{flag: "flex-volume-plugin-dir", is: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", since: "no FlexVolumes are attached or expanded here"},
		{flag: "namespace-sync-period", is: 5 * time.Minute, since: "a namespace is looked at whenever something could have come of it"},
		{flag: "attach-detach-reconcile-sync-period", is: time.Minute, since: attached},
		{flag: "disable-attach-detach-reconcile-sync", is: false, since: attached},
	}
}

func mootOfTheWhole() []moot {
	const (
		cloud   = "controllers of clouds are in the cloud-controller-manager"
		scraped = "labels are rewritten where they are scraped (metric_relabel_configs)"
		alone   = "one process listens on the health address"
		release = "everything here is decided as by Kubernetes " + kubernetes
	)
	return []moot{
		{flag: "cluster-name", is: "kubernetes", any: true, since: "it is for the names of a cloud's load balancers and routes, and " + cloud},
		{flag: "cloud-provider", is: "", also: []value{"external"}, since: cloud},
		{flag: "cloud-config", is: "", since: cloud},
		{flag: "configure-cloud-routes", is: true, also: []value{false}, since: cloud + ", and no routes are made here"},
		{flag: "allow-untagged-cloud", is: false, since: cloud},
		{flag: "external-cloud-volume-plugin", is: "", since: cloud},
		{flag: "route-reconciliation-period", is: 10 * time.Second, since: cloud},
		{flag: "node-sync-period", is: time.Duration(0), since: "it has no effect in kube-controller-manager either"},
		{flag: "concurrent-service-syncs", is: 1, since: cloud},

		{flag: "leader-elect-resource-lock", is: "leases", since: "nothing else is elected by, here or in kube-controller-manager"},
		{flag: "min-resync-period", is: 12 * time.Hour, since: "what is missed is noticed when a watch begins anew, and nothing is listed once in a while"},
		{flag: "controller-start-interval", is: time.Duration(0), since: "controllers wait for what they read, and not for each other"},
		{flag: "kube-api-content-type", is: "application/vnd.kubernetes.protobuf", since: "each request is of the type that suits what it carries"},
		{flag: "emulated-version", is: "", also: []value{kubernetes, ofKube + kubernetes}, since: release},
		{flag: "min-compatibility-version", is: "", also: []value{previous, ofKube + previous}, since: release},

		{flag: "disable-http2-serving", is: false, also: []value{true}, since: "the health address speaks HTTP/1.1 alone"},
		{flag: "http2-max-streams-per-connection", is: 0, since: "the health address speaks HTTP/1.1 alone"},
		{flag: "permit-port-sharing", is: false, since: alone},
		{flag: "permit-address-sharing", is: false, since: alone},
		{flag: "allow-metric-labels", is: "", since: scraped},
		{flag: "allow-metric-labels-manifest", is: "", since: scraped},
	}
}

func addMoot(f *pflag.FlagSet) {
	for _, m := range moots() {
		of := "no other value than kube-controller-manager's default: "
		if m.any || len(m.also) > 0 {
			of = "kube-controller-manager's; " + m.values() + ": "
		}
		made := f.VarPF(&taken{m, m.is}, m.flag, "", of+m.since)
		if _, bool := m.is.(bool); bool {
			made.NoOptDefVal = "true" // so that it can be said without a value
		}
	}
}

// explained adds to the error of an unknown flag the services that have that flag, since
// millrace run takes all of kube-controller-manager's flags, and a single service only some.
func explained(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	if len(name) < 2 {
		return err
	}
	var of []string
	for _, c := range newServices() {
		if c.Flags().Lookup(name) != nil {
			of = append(of, c.Name())
		}
	}
	if len(of) == 0 {
		return err
	}
	return fmt.Errorf("%w, which is of millrace %s: give it there, or everything to millrace run", err, strings.Join(of, " and "))
}
