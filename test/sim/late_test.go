package sim_test

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/reconcilers/controllers/attachdetach"
	"github.com/millrace/millrace/services/reconcilers/controllers/bootstrapsigner"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrapproving"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrcleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrsigning"
	"github.com/millrace/millrace/services/reconcilers/controllers/devicetainteviction"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodeipam"
	"github.com/millrace/millrace/services/reconcilers/controllers/persistentvolumebinder"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgc"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgroupprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvcprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourceclaim"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcepoolstatusrequest"
	"github.com/millrace/millrace/services/reconcilers/controllers/selinuxwarning"
	"github.com/millrace/millrace/services/reconcilers/controllers/servicecidr"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversionmigrator"
	"github.com/millrace/millrace/services/reconcilers/controllers/tokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/volumeexpander"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim/network"
)

func storageControllers() []reconcile.Any {
	return []reconcile.Any{
		persistentvolumebinder.Controller, attachdetach.Controller, volumeexpander.Controller,
		pvcprotection.Controller, pvprotection.Controller, podgc.New(podgc.Config{}),
	}
}

func nodeRanges() []reconcile.Any { return []reconcile.Any{nodeipam.New(ranged())} }

func ranged() (c nodeipam.Config) {
	for _, cidr := range slices.Sorted(maps.Keys(network.ClusterRanges)) {
		c.Cluster = append(c.Cluster, nodeipam.Range{CIDR: cidr, Mask: network.ClusterRanges[cidr]})
	}
	return c
}

func certificates() []reconcile.Any {
	return []reconcile.Any{csrsigning.New(signers), csrapproving.Controller, csrcleaner.Controller}
}

var signers = csrsigning.Config{Signers: csr.Signers()}

var rules = gate.Set{gate.DRADeviceTaintRules: true}

func devicesControllers() []reconcile.Any {
	return []reconcile.Any{resourceclaim.Controller, devicetainteviction.New(rules), garbagecollector.Controller}
}

func joins() []reconcile.Any {
	return []reconcile.Any{tokencleaner.Controller, bootstrapsigner.Controller}
}

// signatures is a cluster in which expired tokens stay.
func signatures() []reconcile.Any { return []reconcile.Any{bootstrapsigner.Controller} }

func groups() []reconcile.Any {
	return []reconcile.Any{podgroupprotection.Controller, servicecidr.Controller}
}

func migrations() []reconcile.Any {
	return append(furniture(), storageversionmigrator.Controller)
}

func labels() []reconcile.Any { return []reconcile.Any{selinuxwarning.Controller} }

func pools() []reconcile.Any { return []reconcile.Any{resourcepoolstatusrequest.Controller} }

// A waiting claim gets an Event every quarter of an hour, so a world of storage never sleeps.
const horizon, quiet = 16 * time.Minute, 20 * time.Minute
