// Package controllers is the catalogue of all controllers that upstream's
// kube-controller-manager has, and of those that Millrace implements.
//
// A new controller is one folder below this one and one line in [catalog].
package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/reconcilers/controllers/attachdetach"
	"github.com/millrace/millrace/services/reconcilers/controllers/bootstrapsigner"
	"github.com/millrace/millrace/services/reconcilers/controllers/clusterroleaggregation"
	"github.com/millrace/millrace/services/reconcilers/controllers/clustertrustbundlepublisher"
	"github.com/millrace/millrace/services/reconcilers/controllers/cronjob"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrapproving"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrcleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrsigning"
	"github.com/millrace/millrace/services/reconcilers/controllers/daemonset"
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/devicetainteviction"
	"github.com/millrace/millrace/services/reconcilers/controllers/disruption"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpoints"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslice"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslicemirroring"
	"github.com/millrace/millrace/services/reconcilers/controllers/ephemeralvolume"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/horizontalpodautoscaler"
	"github.com/millrace/millrace/services/reconcilers/controllers/job"
	"github.com/millrace/millrace/services/reconcilers/controllers/legacytokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/namespace"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodeipam"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodelifecycle"
	"github.com/millrace/millrace/services/reconcilers/controllers/persistentvolumebinder"
	"github.com/millrace/millrace/services/reconcilers/controllers/podcertificaterequestcleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgc"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgroupprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvcprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourceclaim"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcepoolstatusrequest"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcequota"
	"github.com/millrace/millrace/services/reconcilers/controllers/rootcapublisher"
	"github.com/millrace/millrace/services/reconcilers/controllers/selinuxwarning"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccount"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccounttoken"
	"github.com/millrace/millrace/services/reconcilers/controllers/servicecidr"
	"github.com/millrace/millrace/services/reconcilers/controllers/statefulset"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversiongc"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversionmigrator"
	"github.com/millrace/millrace/services/reconcilers/controllers/tainteviction"
	"github.com/millrace/millrace/services/reconcilers/controllers/tokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttl"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttlafterfinished"
	"github.com/millrace/millrace/services/reconcilers/controllers/vacprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/validatingadmissionpolicystatus"
	"github.com/millrace/millrace/services/reconcilers/controllers/volumeexpander"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is the configuration of the controllers that the cluster does not contain. Each
// controller records the fields that it received, under the same names, as its Settings,
// from which [Entry.Again] can create it again.
type Config struct {
	// RootCA is the PEM bundle that root-ca-certificate-publisher-controller publishes,
	// and that service account tokens carry. Without one that controller does not run.
	RootCA []byte `json:"rootCA,omitempty"`
	// EndpointsPerSlice is the maximum number of endpoints of an EndpointSlice; 0 means
	// upstream's 100.
	EndpointsPerSlice int `json:"endpointsPerSlice,omitempty"`
	// MirroredPerSubset is the maximum number of addresses of an Endpoints subset that
	// are mirrored to an EndpointSlice; 0 means upstream's 1,000.
	MirroredPerSubset int `json:"mirroredPerSubset,omitempty"`
	// TerminatedPods is how many terminated pods are kept; 0 means upstream's 12,500, a
	// negative number all.
	TerminatedPods int `json:"terminatedPods,omitempty"`
	// QuotaPeriod is the interval at which quota usage is recounted; 0 means upstream's 5
	// minutes, a negative value never.
	QuotaPeriod time.Duration `json:"quotaPeriod,omitempty"`
	// TokenPeriod is how long an auto-generated token of Kubernetes before 1.24 must have
	// been unused before it is cleaned up; 0 means upstream's year.
	TokenPeriod time.Duration `json:"tokenPeriod,omitempty"`
	// Tokens is true if the writer has the key that signs service account tokens. Without
	// it serviceaccount-token-controller does not run.
	Tokens bool `json:"tokens,omitempty"`
	// Signers are the signers whose keys the writer has. Without any,
	// certificatesigningrequest-signing-controller does not run.
	Signers []string `json:"signers,omitempty"`
	// StorageVersions is true if the API server serves the alpha kind StorageVersion.
	// Without it storageversion-garbage-collector-controller does not run.
	StorageVersions bool `json:"storageVersions,omitempty"`
	// StaticVolumes is true if no provisioner is asked for volumes.
	StaticVolumes bool `json:"staticVolumes,omitempty"`
	// Gates are the feature gates that differ from Kubernetes' defaults.
	Gates gate.Set `json:"gates,omitempty"`
	// Nodes configures when a node counts as silent, and how fast its pods are evicted.
	Nodes Nodes `json:"nodes,omitzero"`
	// Ranges are the CIDR ranges for nodes. Without any, node-ipam-controller does not
	// run.
	Ranges Ranges `json:"ranges,omitzero"`
	// Autoscaling configures the rounds of autoscalers and the rules by which they scale.
	Autoscaling Autoscaling `json:"autoscaling,omitzero"`
	// Attaching configures how long the controller waits for nodes to release volumes.
	Attaching Attaching `json:"attaching,omitzero"`
}

// Autoscaling configures horizontal-pod-autoscaler-controller.
type Autoscaling = horizontalpodautoscaler.Config

// Whole returns a configuration with which every controller of Millrace runs, for callers
// that need the rights of all of them.
func Whole() Config {
	return Config{
		RootCA: []byte("a certificate"), StorageVersions: true, Tokens: true, Signers: csr.Signers(),
		Ranges: Ranges{Cluster: []Range{{CIDR: "10.0.0.0/16", Mask: 24}}},
		Gates: gate.Set{
			gate.GenericWorkload:        true,
			gate.PodCertificateRequest:  true,
			gate.DRADeviceTaintRules:    true,
			gate.DRAResourcePoolStatus:  true,
			gate.StorageVersionMigrator: true,
			gate.ClusterTrustBundle:     true,
		},
	}
}

func (c Config) autoscaling() Autoscaling {
	a := c.Autoscaling
	a.Gates = c.Gates
	return a
}

// Nodes configures node-lifecycle-controller.
type Nodes = nodelifecycle.Config

// Ranges configures node-ipam-controller, Range one range of the cluster.
type (
	Ranges = nodeipam.Config
	Range  = nodeipam.Range
)

// Attaching configures persistentvolume-attach-detach-controller.
type Attaching = attachdetach.Config

// Entry is a line of the catalogue.
type Entry struct {
	// Name is upstream's name; Aliases are its other names for --controllers.
	Name    string
	Aliases []string
	// Off is true if "*" does not include the controller.
	Off bool
	// Elsewhere is true for a controller that upstream knows by name but leaves to a
	// cloud-controller-manager: a list may name it, without effect.
	Elsewhere bool
	// Needs is the flag without which the controller does not run; empty for most.
	Needs string

	// make creates the controller; nil if Millrace does not have it.
	make func(Config) reconcile.Any
	// ready reports whether the configuration suffices to run the controller; nil means always.
	ready func(Config) bool
}

// Exists reports whether Millrace has the controller.
func (e Entry) Exists() bool { return e.make != nil }

// Again creates the controller with the settings that it recorded in a turn.
//
// Errors: Millrace does not have the controller; this version cannot decode the settings;
// the settings are missing, and the controller needs some.
func (e Entry) Again(settings json.RawMessage) (reconcile.Any, error) {
	if !e.Exists() {
		return nil, fmt.Errorf("make %s again: this version does not have it", e.Name)
	}
	var config Config
	if len(settings) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(settings))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&config); err != nil {
			return nil, fmt.Errorf("make %s again: read its recorded settings: %w", e.Name, err)
		}
	}
	if e.ready != nil && !e.ready(config) {
		return nil, fmt.Errorf("make %s again: its settings are not on record", e.Name)
	}
	return e.make(config), nil
}

// Again creates a controller with the settings that it recorded in a turn; see
// [Entry.Again].
func Again(name string, settings json.RawMessage) (reconcile.Any, error) {
	e, ok := Find(name)
	if !ok {
		return nil, fmt.Errorf("make %s again: this version does not know it", name)
	}
	return e.Again(settings)
}

// Catalog returns every controller, grouped by area.
func Catalog() []Entry { return slices.Clone(catalog) }

// Upstream: cmd/kube-controller-manager/names, and the descriptors in its app.
var catalog = []Entry{
	// Workloads.
	configured(func(c Config) reconcile.Any { return deployment.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return replicaset.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return replicationcontroller.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return statefulset.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return daemonset.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return job.New(c.Gates) }),
	have(cronjob.Controller),
	have(disruption.Controller),
	configured(func(c Config) reconcile.Any { return horizontalpodautoscaler.New(c.autoscaling()) }),
	needing("feature-gates", func(Config) reconcile.Any { return podgroupprotection.Controller }, func(c Config) bool { return c.Gates.On(gate.GenericWorkload) }),

	// Life and deletion of objects.
	have(garbagecollector.Controller),
	have(namespace.Controller),
	configured(func(c Config) reconcile.Any { return podgc.New(podgc.Config{Threshold: c.TerminatedPods}) }),
	have(ttlafterfinished.Controller),

	// Identity.
	have(serviceaccount.Controller),
	needing("service-account-private-key-file", func(c Config) reconcile.Any {
		return serviceaccounttoken.New(serviceaccounttoken.Config{RootCA: c.RootCA, Tokens: c.Tokens})
	}, func(c Config) bool { return c.Tokens }),
	needing("root-ca-file", func(c Config) reconcile.Any {
		return rootcapublisher.New(rootcapublisher.Config{RootCA: c.RootCA})
	}, func(c Config) bool { return len(c.RootCA) > 0 }),
	off(have(bootstrapsigner.Controller)),
	off(have(tokencleaner.Controller)),
	configured(func(c Config) reconcile.Any {
		return legacytokencleaner.New(legacytokencleaner.Config{Period: c.TokenPeriod})
	}),
	have(csrapproving.Controller),
	needing("cluster-signing-cert-file", func(c Config) reconcile.Any {
		return csrsigning.New(csrsigning.Config{Signers: c.Signers})
	}, func(c Config) bool { return len(c.Signers) > 0 }),
	have(csrcleaner.Controller),
	needing("feature-gates", func(Config) reconcile.Any { return podcertificaterequestcleaner.Controller }, func(c Config) bool { return c.Gates.On(gate.PodCertificateRequest) }),
	needing("feature-gates", func(c Config) reconcile.Any {
		return clustertrustbundlepublisher.New(clustertrustbundlepublisher.Config{RootCA: c.RootCA})
	}, func(c Config) bool { return c.Gates.On(gate.ClusterTrustBundle) && len(c.RootCA) > 0 }),

	// Network.
	have(endpoints.Controller),
	configured(func(c Config) reconcile.Any { return endpointslice.New(endpointslice.Config{Max: c.EndpointsPerSlice}) }),
	configured(func(c Config) reconcile.Any {
		return endpointslicemirroring.New(endpointslicemirroring.Config{Max: c.MirroredPerSubset})
	}),
	have(servicecidr.Controller),

	// Policy.
	configured(func(c Config) reconcile.Any {
		return resourcequota.New(resourcequota.Config{Period: c.QuotaPeriod, Gates: c.Gates})
	}),
	have(clusterroleaggregation.Controller),
	have(validatingadmissionpolicystatus.Controller),

	// Nodes.
	configured(func(c Config) reconcile.Any { return nodelifecycle.New(c.Nodes) }),
	configured(func(c Config) reconcile.Any { return tainteviction.New(c.Gates) }),
	needing("allocate-node-cidrs", func(c Config) reconcile.Any { return nodeipam.New(c.Ranges) }, func(c Config) bool { return len(c.Ranges.Cluster) > 0 }),
	have(ttl.Controller),

	// Devices.
	configured(func(c Config) reconcile.Any { return resourceclaim.New(c.Gates) }),
	needing("feature-gates", func(c Config) reconcile.Any { return devicetainteviction.New(c.Gates) }, func(c Config) bool { return c.Gates.On(gate.DRADeviceTaints) }),
	needing("feature-gates", func(Config) reconcile.Any { return resourcepoolstatusrequest.Controller }, func(c Config) bool { return c.Gates.On(gate.DRAResourcePoolStatus) }),

	// Storage.
	configured(func(c Config) reconcile.Any {
		return persistentvolumebinder.New(persistentvolumebinder.Config{Static: c.StaticVolumes})
	}),
	configured(func(c Config) reconcile.Any { return attachdetach.New(c.Attaching) }),
	have(volumeexpander.Controller),
	have(ephemeralvolume.Controller),
	configured(func(c Config) reconcile.Any { return pvcprotection.New(c.Gates) }),
	have(pvprotection.Controller),
	have(vacprotection.Controller),
	off(have(selinuxwarning.Controller)),
	needing("feature-gates", func(Config) reconcile.Any { return storageversiongc.Controller }, func(c Config) bool { return c.StorageVersions }),
	needing("feature-gates", func(Config) reconcile.Any { return storageversionmigrator.Controller }, func(c Config) bool { return c.Gates.On(gate.StorageVersionMigrator) }),

	// Clouds.
	{Name: "service-lb-controller", Aliases: []string{"service"}, Elsewhere: true},
	{Name: "node-route-controller", Aliases: []string{"route"}, Elsewhere: true},
	{Name: "cloud-node-lifecycle-controller", Aliases: []string{"cloud-node-lifecycle"}, Elsewhere: true},
}

// have returns the entry of a controller that needs no configuration.
func have(c reconcile.Any) Entry {
	d := c.Describe()
	return Entry{Name: d.Name, Aliases: d.Aliases, make: func(Config) reconcile.Any { return c }}
}

// off marks the entry of a controller that "*" does not include.
func off(e Entry) Entry {
	e.Off = true
	return e
}

// configured returns the entry of a controller for which every configuration suffices.
func configured(made func(Config) reconcile.Any) Entry {
	d := made(Config{}).Describe()
	return Entry{Name: d.Name, Aliases: d.Aliases, make: made}
}

// needing returns the entry of a controller that does not run without a flag.
func needing(flag string, made func(Config) reconcile.Any, ready func(Config) bool) Entry {
	e := configured(made)
	e.Needs, e.ready = flag, ready
	return e
}
