"""Train: ARR-COC's parts on a frozen base."""
