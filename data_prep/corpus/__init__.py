"""Text of any form -> documents -> sentences."""
