package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// moot is a flag of kube-controller-manager for a period that there is none of here, or for
// something that is not done here. Only upstream's default is taken, which manifests may spell
// out: who sets another value would wait for something that does not come.
type moot struct {
	flag  string
	is    value
	since string
}

// value is a period, or a bool, a number or a text as flags have them.
type value any

func (m moot) String() string { return fmt.Sprint(m.is) }

// shown is the value as an error has it.
func (m moot) shown() string {
	if m.is == "" {
		return "empty"
	}
	return m.String()
}

// Type is the word for a value in the usage text.
func (m moot) Type() string {
	if _, period := m.is.(time.Duration); period {
		return "duration"
	}
	return fmt.Sprintf("%T", m.is)
}

// Set takes the one value that there is.
func (m moot) Set(text string) error {
	var is value
	var err error
	switch m.is.(type) {
	case time.Duration:
		is, err = time.ParseDuration(text)
	case bool:
		is, err = strconv.ParseBool(text)
	case int:
		is, err = strconv.Atoi(text)
	default:
		is = text
	}
	if err != nil {
		return err
	}
	if is != m.is {
		return fmt.Errorf("it is %v and nothing else, since %s; take it out", m.shown(), m.since)
	}
	return nil
}

func addMoot(f *pflag.FlagSet) {
	const (
		joined   = "changes that come while the last ones are written are joined without waiting"
		recycled = "volumes are not recycled here"
		attached = "what is attached is looked at whenever it changes"
	)
	for _, m := range []moot{
		{"endpoint-updates-batch-period", time.Duration(0), joined},
		{"endpointslice-updates-batch-period", time.Duration(0), joined},
		{"mirroring-endpointslice-updates-batch-period", time.Duration(0), joined},
		{"node-monitor-period", 5 * time.Second, "a node is judged when it has been silent for long enough, and not once in a while"},
		{"pvclaimbinder-sync-period", 15 * time.Second, "a claim or volume is looked at whenever something could have come of it"},
		{"enable-hostpath-provisioner", false, "directories of the machine are made volumes by kube-controller-manager alone"},
		{"pv-recycler-maximum-retry", 3, recycled},
		{"pv-recycler-pod-template-filepath-nfs", "", recycled},
		{"pv-recycler-minimum-timeout-nfs", 300, recycled},
		{"pv-recycler-increment-timeout-nfs", 30, recycled},
		{"pv-recycler-pod-template-filepath-hostpath", "", recycled},
		{"pv-recycler-minimum-timeout-hostpath", 60, recycled},
		{"pv-recycler-timeout-increment-hostpath", 30, recycled},
		{"flex-volume-plugin-dir", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", "no FlexVolumes are attached or expanded here"},
		{"namespace-sync-period", 5 * time.Minute, "a namespace is looked at whenever something could have come of it"},
		{"attach-detach-reconcile-sync-period", time.Minute, attached},
		{"disable-attach-detach-reconcile-sync", false, attached},
	} {
		made := f.VarPF(m, m.flag, "", "no other value than kube-controller-manager's default: "+m.since)
		if m.is == false {
			made.NoOptDefVal = "true" // so that it can be said without a value, and is refused
		}
	}
}

// instead says, of kube-controller-manager's flags that are none here, what to do. The
// first beginning that fits counts; "=" ends a whole name.
var instead = []struct{ flags, do string }{
	{"leader-elect leader-migration enable-leader-migration", "nobody leads here, any number of replicas work side by side; take it out"},
	{"kube-api-qps= kube-api-burst=", "the API server's priority and fairness says how fast; --max-requests-in-flight bounds what is asked at once"},
	{"kube-api-content-type= min-resync-period= controller-start-interval= emulated-version= min-compatibility-version=", "it is not needed here; take it out"},
	{"version=", "call millrace --version"},
	{"controller-shutdown-timeout=", "set --shutdown-timeout"},
	{"contention-profiling=", "--profiling serves profiles, without those of waiting; take it out"},
	{"bind-address= secure-port= permit-", "health, metrics and profiles are served at --health-address; take it out"},
	{"tls-sni-cert-key= tls-curve-preferences= disable-http2-serving= http2-", "the health address has one certificate (--tls-cert-file) and does not speak HTTP/2; take it out"},
	{"show-hidden-metrics allow-metric disabled-metrics=", "metrics are all shown; take it out"},
	{"cloud- cluster-name= configure-cloud- external-cloud- node-sync-period= route-reconciliation concurrent-service-syncs=",
		"it is of a controller that stays with kube-controller-manager; leave it there"},
}

// explained is the error of a flag that there is none of, with what to do where
// kube-controller-manager has it.
func explained(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	for _, i := range instead {
		for start := range strings.FieldsSeq(i.flags) {
			if strings.HasPrefix(name+"=", start) {
				return fmt.Errorf("%w, which is kube-controller-manager's: %s", err, i.do)
			}
		}
	}
	return err
}
