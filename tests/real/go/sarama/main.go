// The quota APIs through sarama, against the broker that the argument names.
package main

import (
	"log"
	"os"

	"github.com/IBM/sarama"

	"kquota.test/clients/lines"
)

type client struct{ admin sarama.ClusterAdmin }

func (c client) Describe(filter lines.Filter) lines.Answer {
	var components []sarama.QuotaFilterComponent
	for _, one := range filter.Components {
		component := sarama.QuotaFilterComponent{
			EntityType: sarama.QuotaEntityType(one.Type), MatchType: sarama.QuotaMatchType(one.MatchType),
		}
		if one.Match != nil {
			component.Match = *one.Match
		}
		components = append(components, component)
	}
	described, err := c.admin.DescribeClientQuotas(components, filter.Strict)
	if err != nil {
		return lines.Failed(err)
	}
	var answer lines.Answer
	for _, one := range described {
		entity := lines.Entity{Entity: parts(one.Entity)}
		for key, value := range one.Values {
			entity.Values = append(entity.Values, lines.Valued(key, value))
		}
		answer.Entities = append(answer.Entities, entity)
	}
	return answer
}

// Alter uses ClusterAdmin for what it can say, one change of one entity; the rest goes to the controller as a request.
func (c client) Alter(change lines.Change) lines.Answer {
	var entries []sarama.AlterClientQuotasEntry
	for _, one := range change.Alterations {
		var entry sarama.AlterClientQuotasEntry
		for _, part := range one.Entity {
			component := sarama.QuotaEntityComponent{
				EntityType: sarama.QuotaEntityType(part.Type), MatchType: sarama.QuotaMatchDefault,
			}
			if part.Name != nil {
				component.MatchType, component.Name = sarama.QuotaMatchExact, *part.Name
			}
			entry.Entity = append(entry.Entity, component)
		}
		for _, op := range one.Ops {
			entry.Ops = append(entry.Ops, sarama.ClientQuotasOp{
				Key: op.Key, Value: op.Number(), Remove: op.Value == nil,
			})
		}
		entries = append(entries, entry)
	}
	if len(entries) == 1 && len(entries[0].Ops) == 1 {
		if err := c.admin.AlterClientQuotas(entries[0].Entity, entries[0].Ops[0], change.ValidateOnly); err != nil {
			return lines.Failed(err)
		}
		return lines.Answer{}
	}
	controller, err := c.admin.Controller()
	if err != nil {
		return lines.Failed(err)
	}
	altered, err := controller.AlterClientQuotas(&sarama.AlterClientQuotasRequest{
		Version: 1, Entries: entries, ValidateOnly: change.ValidateOnly,
	})
	if err != nil {
		return lines.Failed(err)
	}
	var answer lines.Answer
	for _, one := range altered.Entries {
		result := lines.Result{Entity: parts(one.Entity), Code: int16(one.ErrorCode)}
		if one.ErrorMsg != nil {
			result.Error = *one.ErrorMsg
		}
		answer.Results = append(answer.Results, result)
	}
	return answer
}

func parts(entity []sarama.QuotaEntityComponent) []lines.Part {
	var found []lines.Part
	for _, one := range entity {
		part := lines.Part{Type: string(one.EntityType)}
		if one.MatchType != sarama.QuotaMatchDefault {
			part.Name = &one.Name
		}
		found = append(found, part)
	}
	return found
}

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	admin, err := sarama.NewClusterAdmin([]string{os.Args[1]}, config)
	if err != nil {
		log.Fatal(err)
	}
	defer admin.Close()
	lines.Serve(client{admin})
}
